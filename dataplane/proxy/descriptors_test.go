package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// proxyTo makes the test binary a proxy to that address, which prints where it listens; its end of
// standard input ends it. So a test can give it a descriptor limit of its own.
const proxyTo = "GUIDEWAY_TEST_PROXY_TO"

func TestMain(m *testing.M) {
	if to := os.Getenv(proxyTo); to != "" {
		if err := serveWithFewDescriptors(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serveWithFewDescriptors(to string) error {
	limit := syscall.Rlimit{Cur: 60 + reserved, Max: 60 + reserved}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	store := stats.NewStore()
	srv, err := New(Config{Workers: 1, Stats: store, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	cluster := newCluster(store, "c")
	cluster.Balancer = &anyHost{[]*dataplane.Host{host(to)}}
	err = srv.Apply(context.Background(), &dataplane.Snapshot{
		Clusters: map[string]*dataplane.Cluster{"c": cluster},
		Listeners: []*dataplane.Listener{{
			Name: "l", StatName: "l", Protocol: dataplane.TCP,
			Addresses:    []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}},
			DefaultChain: &dataplane.FilterChain{Proxy: &dataplane.TCPProxy{StatPrefix: "t", Clusters: []dataplane.WeightedCluster{{Name: "c"}}}},
		}},
	})
	if err != nil {
		return err
	}
	fmt.Println(srv.Listening()[0].Addresses[0].Addr)
	io.Copy(io.Discard, os.Stdin)
	fmt.Println(cluster.Stats.UpstreamCxConnectFail.Value(), store.Counter("guideway.accept_paused").Value())
	return srv.Close()
}

// TestDescriptorExhaustion: with descriptors for some 25 connections, 100 clients all get served, the
// later ones when the first have left; those that are connected notice nothing; one log line says it.
func TestDescriptorExhaustion(t *testing.T) {
	h := startHost(t, greet)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proxyTo+"="+h.addr())
	var log strings.Builder
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the proxy did not start: %s", log.String())
	}
	addr := lines.Text()

	const clients = 100
	served := make(chan *client, clients)
	var wg sync.WaitGroup
	for range clients {
		c := dial(t, addr)
		wg.Go(func() {
			b := make([]byte, 1)
			if _, err := c.Read(b); err != nil {
				t.Errorf("a client was not served: %v", err)
				c.Close()
				return
			}
			served <- c
		})
	}
	var first []*client
	for range 20 {
		first = append(first, <-served)
	}
	for range 200 { // there is no descriptor left, and these go on
		for _, c := range first[:3] {
			c.say("x").hear("x")
		}
	}
	for _, c := range first {
		c.Close()
	}
	go func() { wg.Wait(); close(served) }()
	n := len(first)
	for c := range served {
		c.say("y").hear("y").Close()
		n++
	}
	if n != clients {
		t.Errorf("%d of %d clients were served", n, clients)
	}
	in.Close()
	if !lines.Scan() {
		t.Fatal("no last words")
	}
	var failed, paused int
	fmt.Sscan(lines.Text(), &failed, &paused)
	if failed != 0 || paused == 0 || paused > 10*clients { // many more, and it would be spinning
		t.Errorf("%d connects failed, accepting paused %d times", failed, paused)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "out of descriptors"); got != 1 {
		t.Errorf("%d log lines about it:\n%s", got, log.String())
	}
}
