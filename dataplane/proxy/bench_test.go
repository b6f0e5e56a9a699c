package proxy

import (
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The benchmarks compare the data plane with what a Go programmer would write first: a goroutine for
// each direction, and io.Copy, which splices. "cpu-s/..." is the processor time of the whole process,
// clients and backends included; these are the same for both, so only the difference tells.

// naive is that proxy.
func naive(tb testing.TB, to string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				u, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer u.Close()
				var wg sync.WaitGroup
				copyTo := func(a, b net.Conn) {
					io.Copy(a, b)
					a.(*net.TCPConn).CloseWrite()
				}
				wg.Go(func() { copyTo(u, c) })
				copyTo(c, u)
				wg.Wait()
			}()
		}
	}()
	return l.Addr().String()
}

func ours(tb testing.TB, to string) string {
	b := newBed(tb)
	b.setHosts(to)
	b.apply()
	return b.addr()
}

func direct(_ testing.TB, to string) string { return to }

func eachProxy(b *testing.B, run func(*testing.B, func(testing.TB, string) string)) {
	for _, p := range []struct {
		name  string
		start func(testing.TB, string) string
	}{{"direct", direct}, {"naive", naive}, {"guideway", ours}} {
		b.Run(p.name, func(b *testing.B) { run(b, p.start) })
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkStream(b *testing.B) {
	for _, streams := range []int{1, 16} {
		b.Run(map[int]string{1: "1", 16: "16"}[streams], func(b *testing.B) {
			eachProxy(b, func(b *testing.B, start func(testing.TB, string) string) {
				const chunk = 1 << 20
				h := startHost(b, func(_ *fakeHost, c *net.TCPConn) { discard(c) })
				addr := start(b, h.addr())
				buf := make([]byte, 256<<10)
				b.SetBytes(chunk)
				before := cpu()
				b.ResetTimer()
				var wg sync.WaitGroup
				for i := range streams {
					wg.Go(func() {
						c := dial(b, addr)
						c.SetDeadline(time.Time{})
						for n := i; n < b.N; n += streams {
							for range chunk / len(buf) {
								if _, err := c.Write(buf); err != nil {
									b.Error(err)
									return
								}
							}
						}
						c.CloseWrite()
						c.hearOut()
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric((cpu()-before).Seconds()*1024/float64(b.N), "cpu-s/GiB")
			})
		})
	}
}

// discard reads to the end without copying the bytes to user space (MSG_TRUNC, tcp(7)).
func discard(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 1<<20)
	raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := syscall.Recvfrom(int(fd), buf, syscall.MSG_TRUNC)
			if err == syscall.EAGAIN {
				return false
			}
			if err != nil || n == 0 {
				return true
			}
		}
	})
}

func BenchmarkShortConnections(b *testing.B) {
	eachProxy(b, func(b *testing.B, start func(testing.TB, string) string) {
		h := startHost(b, echo)
		addr := start(b, h.addr())
		before := cpu()
		b.ResetTimer()
		var wg sync.WaitGroup
		const clients = 8
		for i := range clients {
			wg.Go(func() {
				buf := make([]byte, 64)
				for n := i; n < b.N; n += clients {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						b.Error(err)
						return
					}
					c.Write(buf)
					io.ReadFull(c, buf)
					c.Close()
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric((cpu()-before).Seconds()*1e4/float64(b.N), "cpu-s/10k")
	})
}

func BenchmarkEcho64(b *testing.B) {
	eachProxy(b, func(b *testing.B, start func(testing.TB, string) string) {
		h := startHost(b, echo)
		addr := start(b, h.addr())
		const clients = 16
		var conns []*client
		for range clients {
			c := dial(b, addr)
			c.SetDeadline(time.Time{})
			conns = append(conns, c)
		}
		before := cpu()
		b.ResetTimer()
		var wg sync.WaitGroup
		for i, c := range conns {
			wg.Go(func() {
				buf := make([]byte, 64)
				for n := i; n < b.N; n += clients {
					c.Write(buf)
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric((cpu()-before).Seconds()*1e6/float64(b.N), "cpu-µs/op")
	})
}

// BenchmarkIdle measures the memory of connections that are held, both sides, in this process.
func BenchmarkIdle(b *testing.B) {
	eachProxy(b, func(b *testing.B, start func(testing.TB, string) string) {
		h := startHost(b, func(_ *fakeHost, c *net.TCPConn) { discard(c) })
		addr := start(b, h.addr())
		const n = 2000
		for range b.N {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var conns []*client
			for range n {
				conns = append(conns, dial(b, addr))
			}
			eventually(b, "all connections", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.open) >= n })
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "B/connection")
			for _, c := range conns {
				c.Close()
			}
		}
	})
}
