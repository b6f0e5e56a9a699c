package stats

import (
	"iter"
	"math"
	"slices"
	"sync"
)

// Histogram collects values (milliseconds, counts). The zero value is ready; safe for concurrent use.
// As in Envoy, recorded values show only after a flush (Store.Flush): those since the flush before as
// the interval, all as the cumulative distribution. About 60 bytes until it is used.
type Histogram struct {
	mu         sync.Mutex
	live       Distribution // being filled
	interval   Distribution // immutable between flushes, as is the next
	cumulative Distribution
}

// Record adds one value. Negative values count as 0.
func (h *Histogram) Record(v float64) {
	if math.IsNaN(v) {
		return
	}
	v = min(v, 1e100) // an infinite sum would stay
	h.mu.Lock()
	h.live.add(v)
	h.mu.Unlock()
}

// Interval returns what was recorded between the last two flushes.
func (h *Histogram) Interval() Distribution {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.interval
}

// Cumulative returns what was recorded up to the last flush.
func (h *Histogram) Cumulative() Distribution {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cumulative
}

// Used reports whether a value has ever been recorded.
func (h *Histogram) Used() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live.count+h.cumulative.count > 0
}

func (h *Histogram) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interval = h.live
	h.live = Distribution{}
	if h.interval.count > 0 {
		h.cumulative = h.cumulative.plus(h.interval)
	}
}

// Distribution is how often values occurred, in bins of two significant decimal digits: [10, 11),
// [11, 12) ... [99, 100), [100, 110) and so on, as in OpenHistogram, which Envoy uses. A bin takes 16 bytes.
type Distribution struct {
	bins  []bin // by key
	count uint64
	sum   float64
}

type bin struct {
	key   int16 // exponent*100 + mantissa of 10 to 99; zeroBin for the value 0
	count uint64
}

const zeroBin = math.MinInt16

// binOf returns the bin of v.
func binOf(v float64) int16 {
	if v <= 1e-120 {
		return zeroBin
	}
	v = min(v, 9.9e120)
	exp := int(math.Floor(math.Log10(v)))
	m := v / math.Pow10(exp-1)
	for m < 10-1e-13 {
		exp--
		m = v / math.Pow10(exp-1)
	}
	for m >= 100 {
		exp++
		m = v / math.Pow10(exp-1)
	}
	return int16(exp*100 + int(m+1e-13))
}

// bounds returns the lower bound of a bin and its width.
func (b bin) bounds() (left, width float64) {
	if b.key == zeroBin {
		return 0, 0
	}
	m := ((int(b.key) % 100) + 100) % 100
	exp := (int(b.key) - m) / 100
	if exp > 0 {
		return float64(m) * math.Pow10(exp-1), math.Pow10(exp - 1)
	}
	return float64(m) / math.Pow10(1-exp), 1 / math.Pow10(1-exp)
}

func (d *Distribution) add(v float64) {
	key := binOf(v)
	i, found := slices.BinarySearchFunc(d.bins, key, func(b bin, k int16) int { return int(b.key) - int(k) })
	if !found {
		d.bins = slices.Insert(d.bins, i, bin{key: key})
	}
	d.bins[i].count++
	d.count++
	d.sum += max(v, 0)
}

// plus returns the sum of two distributions; neither is changed.
func (d Distribution) plus(e Distribution) Distribution {
	sum := Distribution{bins: make([]bin, 0, max(len(d.bins), len(e.bins))), count: d.count + e.count, sum: d.sum + e.sum}
	a, b := d.bins, e.bins
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].key < b[0].key:
			sum.bins, a = append(sum.bins, a[0]), a[1:]
		case a[0].key > b[0].key:
			sum.bins, b = append(sum.bins, b[0]), b[1:]
		default:
			sum.bins = append(sum.bins, bin{a[0].key, a[0].count + b[0].count})
			a, b = a[1:], b[1:]
		}
	}
	sum.bins = append(append(sum.bins, a...), b...)
	return sum
}

// Count returns how many values there are.
func (d Distribution) Count() uint64 { return d.count }

// Sum returns the sum of all values.
func (d Distribution) Sum() float64 { return d.sum }

// Bins yields the lower bound, the width and the count of each bin that has values, in order.
func (d Distribution) Bins() iter.Seq2[[2]float64, uint64] {
	return func(yield func([2]float64, uint64) bool) {
		for _, b := range d.bins {
			left, width := b.bounds()
			if !yield([2]float64{left, width}, b.count) {
				return
			}
		}
	}
}

// Quantiles returns the smallest values that the given shares (0 to 1, ascending) of all values do not
// exceed, the values of a bin taken as spread evenly over it; NaN if there are no values.
func (d Distribution) Quantiles(shares []float64) []float64 {
	out := make([]float64, len(shares))
	i, below := 0, uint64(0) // the bin, and how many values are in those before it
	for k, share := range shares {
		if d.count == 0 {
			out[k] = math.NaN()
			continue
		}
		rank := min(max(uint64(math.Ceil(share*float64(d.count))), 1), d.count)
		for ; rank > below+d.bins[i].count; i++ {
			below += d.bins[i].count
		}
		left, width := d.bins[i].bounds()
		out[k] = left + float64(rank-below)/float64(d.bins[i].count+1)*width
	}
	return out
}

// CountsAtMost returns for each bound (ascending) how many values are not above it. A bin belongs to a
// bound that it contains, so that whole numbers of two digits are counted exactly.
func (d Distribution) CountsAtMost(bounds []float64) []uint64 {
	out := make([]uint64, len(bounds))
	i, n := 0, uint64(0)
	for k, bound := range bounds {
		for ; i < len(d.bins); i++ {
			if left, _ := d.bins[i].bounds(); left > bound {
				break
			}
			n += d.bins[i].count
		}
		out[k] = n
	}
	return out
}

// Quantiles that Envoy shows.
var Quantiles = []float64{0, 0.25, 0.5, 0.75, 0.90, 0.95, 0.99, 0.995, 0.999, 1}

// DefaultBounds are Envoy's histogram buckets, in the histogram's unit; the infinite one is not among them.
var DefaultBounds = []float64{
	0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000,
	1800000, 3600000,
}
