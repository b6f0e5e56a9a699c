package xds

// Request is one discovery request, in either form of the protocol.
type Request struct {
	Type  Type
	Nonce string
	// Err is why the response of that nonce is refused, nil if it is not.
	Err error

	// State of the world: the last accepted version and all names (none for a wildcard).
	Version string
	Names   []string

	// Delta: changes of the subscription and, on the first request of a stream, what the client has.
	Subscribe, Unsubscribe []string
	InitialVersions        map[string]string
}

// Response is one discovery response, in either form of the protocol.
type Response struct {
	URL            string
	Version, Nonce string
	Resources      []*Resource
	Removed        []string // delta
	// Err refuses the response as a whole.
	Err error
	// ControlPlane is the server's name for itself.
	ControlPlane string
}

// machine is the state of the protocol for one type: what has been asked for, what was answered, and
// which request comes next. It does no I/O and knows no time.
type machine interface {
	// restart begins a new stream; what was learnt on former ones stays known.
	restart()
	// want and unwant change the names asked for. A wildcard is the name "". again asks for a name that
	// is wanted already.
	want(name string)
	unwant(name string)
	// answer notes what became of a response: err refuses it, or those resources that it names. It
	// makes a request due.
	answer(r *Response, err error)
	// ignore notes a response that nobody waits for.
	ignore(r *Response)
	// anew asks for everything as if nothing was known.
	anew()
	// due reports whether a request is to be sent, and refusing whether it refuses a response.
	due() bool
	refusing() bool
	// next returns the request that is due, as sent.
	next() *Request
	// version is the last one accepted.
	accepted() string
}
