package scheme

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"
)

// nginx is the ring of nginx's "hash KEY consistent" (ngx_http_upstream_hash and
// ngx_stream_upstream_hash): CRC-32, 160 points for each unit of weight, each
// made from the one before. Servers are written as "address:port". Of points that
// collide the server first in address order counts; nginx leaves that to qsort.
type nginx struct{}

const nginxPoints = 160 // of a server of weight 1

func (nginx) Spec() string   { return "nginx" }
func (nginx) Kind() string   { return "nginx" }
func (nginx) Weighted() bool { return true }

func (nginx) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	build := builder[uint32]{names: names(backends)}
	for i, b := range backends {
		n := nginxPoints * uint64(b.Weight)
		if uint64(len(build.points))+n > maxTableEntries {
			return nil, errTooManyEntries("nginx", "weights")
		}
		host := b.Addr.Addr().String()
		if b.Addr.Addr().Is6() {
			host = "[" + host + "]"
		}
		// CRC-32 of: host, a zero byte, port, the point before in little-endian.
		base := crc32.ChecksumIEEE([]byte(host + "\x00" + strconv.Itoa(int(b.Addr.Port()))))
		var before [4]byte
		for range n {
			hash := crc32.Update(base, crc32.IEEETable, before[:])
			binary.LittleEndian.PutUint32(before[:], hash)
			build.add(hash, i)
		}
	}
	return &nginxPlacement{*build.circle(len(backends))}, nil
}

type nginxPlacement struct{ circle[uint32] }

func (p *nginxPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.owners[p.next(crc32.ChecksumIEEE(keys[i][:]))])
	}
}

func (p *nginxPlacement) Top(dst []int32, key *Key, k int) []int32 {
	return p.top(dst, p.next(crc32.ChecksumIEEE(key[:])), k)
}
