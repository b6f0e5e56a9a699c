package controlplane

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/guideway/guideway/controlplane/health"
)

// eventLog returns the writer of an event log path, opened once for all that name it; nil for "" or a
// file that cannot be opened, which is reported.
func (c *Control) eventLog(path string) io.Writer {
	if path == "" {
		return nil
	}
	if f := c.eventLogs[path]; f != nil {
		return f
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.Log.For("hc").Error("no event log", "reason", err)
		return nil
	}
	c.eventLogs[path] = f
	return f
}

// checkLimits are the runtime's bounds of check intervals, in ms.
func (c *Control) checkLimits() func() health.Limits {
	bound := func(key string) time.Duration {
		ms, err := strconv.ParseUint(c.runtime[key], 10, 32)
		if err != nil {
			return 0
		}
		return time.Duration(ms) * time.Millisecond
	}
	limits := health.Limits{Min: bound("health_check.min_interval"), Max: bound("health_check.max_interval")}
	return func() health.Limits { return limits }
}
