package proxy

import (
	"fmt"

	"github.com/guideway/guideway/dataplane"
)

// newUDPListener serves one UDP socket of a listener on one worker.
func newUDPListener(w *worker, fd int, l *dataplane.Listener, status *listenerStatus) (udpEndpoint, error) {
	return nil, fmt.Errorf("listener %q: UDP is not served yet", l.Name)
}
