package scheme

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// redisSlots is the number of hash slots of a Redis Cluster.
const redisSlots = 16384

// rebalanceThreshold is how far, in percent, a node may be from its share before
// redis-cli moves anything.
const rebalanceThreshold = 2

// fixedSlots places keys as Redis Cluster does: CRC-16/XMODEM of the key mod 16,384
// is its slot, and slots have owners that somebody assigned. Here redis-cli did:
// "--cluster create" deals the slots out, a change is "--cluster rebalance" with
// empty masters used, and weight 0 for nodes that leave. Keys are binary; hash
// tags ({...}) are not looked for.
type fixedSlots struct{}

func (fixedSlots) Spec() string   { return "redis-slots" }
func (fixedSlots) Kind() string   { return "redis-slots" }
func (fixedSlots) Weighted() bool { return true }

// slotNode is a master during a rebalancing.
type slotNode struct {
	addr    netip.AddrPort
	weight  uint32 // 0: it leaves
	slots   int
	balance int // slots it has too many
	index   int32
}

func (fixedSlots) Place(backends []Backend, former Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	p := &slotsPlacement{}
	nodes := make([]slotNode, 0, len(backends))
	known := make(map[netip.AddrPort]int, len(backends))
	for i, b := range backends {
		known[b.Addr] = i
		nodes = append(nodes, slotNode{addr: b.Addr, weight: b.Weight, index: int32(i)})
	}
	before, ok := former.(*slotsPlacement)
	if !ok {
		p.deal(len(backends))
	} else {
		leaving := make(map[netip.AddrPort]int)
		for slot, owner := range before.owners {
			addr := before.names[owner]
			at, ok := known[addr]
			if !ok {
				if at, ok = leaving[addr]; !ok {
					at = len(nodes)
					leaving[addr] = at
					nodes = append(nodes, slotNode{addr: addr, index: int32(at)})
				}
			}
			p.owners[slot] = uint16(at)
		}
	}
	for _, b := range backends {
		p.names = append(p.names, b.Addr)
	}
	if ok || !equalWeights(backends) {
		p.rebalance(nodes)
	}
	return p, nil
}

// slotsPlacement takes 2 bytes a slot.
type slotsPlacement struct {
	owners [redisSlots]uint16
	names  []netip.AddrPort // of the backends
}

func (p *slotsPlacement) Bytes() int { return 2 * len(p.owners) }

func (p *slotsPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.owners[crc16(keys[i][:])%redisSlots])
	}
}

// deal gives each of n nodes one run of slots, as "--cluster create" does.
func (p *slotsPlacement) deal(n int) {
	each, first, cursor := float32(redisSlots)/float32(n), 0, float32(0)
	for node := range n {
		last := int(math.Round(float64(cursor + each - 1)))
		if last > redisSlots-1 || node == n-1 {
			last = redisSlots - 1
		}
		last = max(last, first)
		for slot := first; slot <= last && slot < redisSlots; slot++ {
			p.owners[slot] = uint16(node)
		}
		first, cursor = last+1, cursor+each
	}
}

// rebalance moves as few slots as bring every node to its share, as "--cluster
// rebalance" does: nothing if all are near it; else from the node that has most
// too many to the one that has most too few, its lowest slots first.
func (p *slotsPlacement) rebalance(nodes []slotNode) {
	total := float32(0)
	for i := range nodes {
		total += float32(nodes[i].weight)
	}
	for _, owner := range p.owners {
		nodes[owner].slots++
	}
	sum, needed := 0, false
	for i := range nodes {
		n := &nodes[i]
		share := int(float32(redisSlots) / total * float32(n.weight))
		n.balance = n.slots - share
		sum += n.balance
		if n.slots > 0 {
			needed = needed || math.Abs(100-100*float64(share)/float64(n.slots)) > rebalanceThreshold
		} else {
			needed = needed || share > 1
		}
	}
	if !needed {
		return
	}
	// Shares are rounded down: nodes that are not above theirs take one slot more,
	// until what is given is what is taken.
	for sum > 0 {
		for i := range nodes {
			if nodes[i].balance <= 0 && nodes[i].weight > 0 && sum > 0 {
				nodes[i].balance--
				sum--
			}
		}
	}
	slices.SortStableFunc(nodes, func(a, b slotNode) int { return cmp.Compare(a.balance, b.balance) })
	for to, from := 0, len(nodes)-1; to < from; {
		n := min(abs(nodes[to].balance), abs(nodes[from].balance))
		p.move(nodes[from].index, nodes[to].index, n)
		nodes[to].balance += n
		nodes[from].balance -= n
		if nodes[to].balance == 0 {
			to++
		}
		if nodes[from].balance == 0 {
			from--
		}
	}
}

func abs(n int) int { return max(n, -n) }

// move gives the lowest n slots of one node to another.
func (p *slotsPlacement) move(from, to int32, n int) {
	for slot := 0; slot < redisSlots && n > 0; slot++ {
		if p.owners[slot] == uint16(from) {
			p.owners[slot] = uint16(to)
			n--
		}
	}
}

// crc16Table is that of CRC-16/XMODEM: polynomial 0x1021, no reflection.
var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

func crc16(data []byte) uint16 {
	crc := uint16(0)
	for _, b := range data {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^b]
	}
	return crc
}
