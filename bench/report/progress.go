package report

import (
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress returns a function that shows on a terminal how much is done, and one
// that takes the bar away. If f is no terminal, they do nothing.
func Progress(f *os.File, what string) (show func(done, total int), end func()) {
	if !term.IsTerminal(int(f.Fd())) {
		return func(int, int) {}, func() {}
	}
	var bar *progressbar.ProgressBar
	show = func(done, total int) {
		if bar == nil {
			bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
				progressbar.OptionClearOnFinish(), progressbar.OptionShowCount(), progressbar.OptionFullWidth())
		}
		// A bar that cannot be drawn is not worth failing for.
		_ = bar.Set(done)
	}
	return show, func() {
		if bar != nil {
			_ = bar.Clear()
		}
	}
}
