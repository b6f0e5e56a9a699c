package tablecost

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// Target is where tables are pushed to. A target has one service.
type Target interface {
	// Name says what it is, in a few words.
	Name() string
	// Push puts a table in force; hosts are the addresses of the table's hosts. It
	// returns when every packet from now on goes by the table.
	Push(hosts []netip.AddrPort, t *maglev.Table) error
	// Close gives up what the target holds.
	Close() error
}

// Userspace returns a target that is the steering state of the userspace data
// plane. Slots that change open, as they do in service.
func Userspace() (Target, error) { return &userspace{}, nil }

type userspace struct {
	steering conntrack.Steering
	members  []conntrack.Member
	pushes   time.Duration
}

func (u *userspace) Name() string { return "userspace steering table" }

func (u *userspace) Close() error { return nil }

func (u *userspace) Push(hosts []netip.AddrPort, t *maglev.Table) error {
	slots := t.Narrow()
	if slots == nil {
		return fmt.Errorf("a table of %d hosts: a service has at most %d backends", len(hosts), conntrack.NoBackend-1)
	}
	// A host keeps its index: one that is not there any more still has flows.
	u.members = u.members[:0]
	for _, h := range hosts {
		u.members = append(u.members, conntrack.Member{Addr: h, Serves: true})
	}
	u.pushes += time.Second
	_, err := u.steering.Apply(conntrack.Desired{
		Members: u.members,
		Tables:  []conntrack.Table{{ID: 1, Slots: slots}},
		Top:     1,
		Idle:    conntrack.DefaultIdle(6),
	}, u.pushes)
	return err
}
