package logging

import (
	"fmt"
	"log/slog"
	"strings"
)

// Levels beyond slog's four, as Envoy has them.
const (
	LevelTrace    = slog.LevelDebug - 4
	LevelCritical = slog.LevelError + 4
	LevelOff      = LevelCritical + 4
)

var levels = []struct {
	name  string
	level slog.Level
}{
	{"trace", LevelTrace}, {"debug", slog.LevelDebug}, {"info", slog.LevelInfo},
	{"warning", slog.LevelWarn}, {"error", slog.LevelError}, {"critical", LevelCritical}, {"off", LevelOff},
}

// ParseLevel reads Envoy's level names: trace, debug, info, warning (or warn), error, critical, off.
func ParseLevel(s string) (slog.Level, error) {
	if s == "warn" {
		s = "warning"
	}
	for _, l := range levels {
		if l.name == s {
			return l.level, nil
		}
	}
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return 0, fmt.Errorf("invalid log level specified '%s': use one of %s", s, strings.Join(names, ", "))
}

// LevelName returns Envoy's name of the highest named level that is not above l.
func LevelName(l slog.Level) string {
	name := levels[0].name
	for _, k := range levels {
		if l >= k.level {
			name = k.name
		}
	}
	return name
}
