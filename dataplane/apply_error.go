package dataplane

import "strings"

// ListenerError tells which listeners Apply could not put in force; all others are.
type ListenerError struct {
	Failed []ListenerFailure
}

// ListenerFailure is one listener and why it does not serve, e.g.
// "cannot bind '0.0.0.0:80': Address already in use".
type ListenerFailure struct {
	Name string
	Err  error
}

// Error is the messages of all failures.
func (e *ListenerError) Error() string {
	var b strings.Builder
	for i, f := range e.Failed {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Err.Error())
	}
	return b.String()
}

// Unwrap returns the errors of the listeners.
func (e *ListenerError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}
