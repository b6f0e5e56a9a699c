package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/bench/live"
	"github.com/guideway/guideway/dataplane/xdp"
)

// guidewayXDP is this program's XDP data plane, with one of the ways of tracking flows that it has. Backends are on the
// balancer's LAN and answer clients themselves.
func guidewayXDP(track string) Subject {
	return Subject{
		Name:     "guideway-xdp-" + track,
		About:    "XDP in the driver, forwarding l2, track: " + track + "; configuration file renamed into place; TCP health checks every 500 ms",
		Networks: []live.Network{live.TCP, live.UDP},
		XDP:      true,
		Find: func(o Options) (string, error) {
			if err := xdp.CheckPrivileges(); err != nil {
				return "", err
			}
			return numberOf(says(o.Program, "version"))
		},
		Start: func(ctx context.Context, o Options, at Place, fleet Fleet) (Balancer, error) {
			b := &xdpBalancer{pins: filepath.Join(at.Dir, "bpf")}
			if err := os.Mkdir(b.pins, 0o700); err != nil {
				return nil, err
			}
			b.config = filepath.Join(at.Dir, "envoy.json")
			b.node = message{"dataplane": "xdp", "interfaces": []any{front}}
			b.cluster = message{"forwarding": "l2", "track": track}
			return b, b.start(ctx, at, fleet, o.Program, "--require-native", "--xdp-pins", b.pins)
		},
	}
}

// xdpBalancer is one that leaves its program in the kernel when it ends.
type xdpBalancer struct {
	envoyLike
	pins string
}

// Stop implements Balancer.
func (b *xdpBalancer) Stop() error {
	err := b.envoyLike.Stop()
	if _, e := xdp.Detach(b.pins); e != nil {
		err = errors.Join(err, e)
	}
	// The program has mounted a bpffs there, if it came so far.
	if e := unix.Unmount(b.pins, 0); e != nil && !errors.Is(e, unix.EINVAL) {
		err = errors.Join(err, fmt.Errorf("unmounting %s: %w", b.pins, e))
	}
	return err
}
