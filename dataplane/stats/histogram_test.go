package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBins(t *testing.T) {
	for _, c := range []struct{ v, left, width float64 }{
		{0, 0, 0}, {-1, 0, 0}, {1, 1, 0.1}, {2, 2, 0.1}, {9.99, 9.9, 0.1}, {10, 10, 1}, {29, 29, 1}, {99, 99, 1},
		{100, 100, 10}, {999, 990, 10}, {1000, 1000, 100}, {12345, 12000, 1000}, {0.29, 0.29, 0.01},
		{0.3, 0.3, 0.01}, {0.001, 0.001, 0.0001}, {3600000, 3600000, 100000},
	} {
		left, width := bin{key: binOf(c.v)}.bounds()
		if math.Abs(left-c.left) > 1e-9*c.left || math.Abs(width-c.width) > 1e-9*c.width {
			t.Errorf("%v is in [%v, +%v), want [%v, +%v)", c.v, left, width, c.left, c.width)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		v := math.Exp(r.Float64()*60 - 20)
		left, width := bin{key: binOf(v)}.bounds()
		if v < left*(1-1e-12) || v > (left+width)*(1+1e-12) || width > left*0.1000001 {
			t.Fatalf("%v is in [%v, +%v)", v, left, width)
		}
	}
}

// TestEnvoysQuantiles has what Envoy 1.40 shows when the value 1 was recorded so many times.
func TestEnvoysQuantiles(t *testing.T) {
	for n, want := range map[int][]float64{
		1: {1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05},
		2: {1.0333333333333334, 1.0333333333333334, 1.0333333333333334, 1.0666666666666667, 1.0666666666666667, 1.0666666666666667, 1.0666666666666667, 1.0666666666666667, 1.0666666666666667, 1.0666666666666667},
		4: {1.02, 1.02, 1.04, 1.06, 1.08, 1.08, 1.08, 1.08, 1.08, 1.08},
		7: {1.0125, 1.025, 1.05, 1.075, 1.0875, 1.0875, 1.0875, 1.0875, 1.0875, 1.0875},
	} {
		var h Histogram
		for range n {
			h.Record(1)
		}
		if n := h.Interval().Count(); n != 0 {
			t.Errorf("%d values show before a flush", n)
		}
		h.flush()
		for i, got := range h.Interval().Quantiles(Quantiles) {
			if math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("P%v of %d values is %v, want %v", Quantiles[i]*100, n, got, want[i])
			}
		}
		if got := h.Cumulative().CountsAtMost([]float64{0.5, 1, 5}); !slices.Equal(got, []uint64{0, uint64(n), uint64(n)}) {
			t.Errorf("buckets of %d values: %v", n, got)
		}
		h.flush()
		if q := h.Interval().Quantiles([]float64{0.5}); !math.IsNaN(q[0]) {
			t.Errorf("an interval without values has P50 %v", q[0])
		}
		if got := h.Cumulative().Count(); got != uint64(n) {
			t.Errorf("%d values in all, want %d", got, n)
		}
	}
}

// TestQuantilesAgainstSorting holds quantiles and buckets against the sorted values themselves.
func TestQuantilesAgainstSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var h Histogram
		values := make([]float64, 1+r.IntN(2000))
		sum := 0.0
		for i := range values {
			values[i] = math.Floor(math.Exp(r.NormFloat64()*2 + 3))
			sum += values[i]
			h.Record(values[i])
			if r.IntN(300) == 0 {
				h.flush()
			}
		}
		h.flush()
		d := h.Cumulative()
		slices.Sort(values)
		if d.Count() != uint64(len(values)) || math.Abs(d.Sum()-sum) > 1e-6*sum {
			t.Fatalf("count %d sum %v, want %d and %v", d.Count(), d.Sum(), len(values), sum)
		}
		for i, got := range d.Quantiles(Quantiles) {
			at := int(Quantiles[i] * float64(len(values)))
			low, high := values[max(at-1, 0)], values[min(at, len(values)-1)]
			if got < low*0.9-1e-9 || got > high*1.11+1e-9 {
				t.Errorf("P%v is %v, between %v and %v of %d values", Quantiles[i]*100, got, low, high, len(values))
			}
		}
		for i, got := range d.CountsAtMost(DefaultBounds) {
			bound := DefaultBounds[i]
			exact, _ := slices.BinarySearch(values, math.Nextafter(bound, math.Inf(1)))
			// a bin that holds the bound is counted as a whole: at most 10 % above it
			loose, _ := slices.BinarySearch(values, bound*1.1)
			if got < uint64(exact) || got > uint64(max(loose, exact)) {
				t.Errorf("%d values up to %v, want %d to %d", got, bound, exact, loose)
			}
		}
	}
}

func TestHistogramOddValues(t *testing.T) {
	var h Histogram
	for _, v := range []float64{math.NaN(), math.Inf(1), -5, 1e300, 5e-324} {
		h.Record(v)
	}
	h.flush()
	if n := h.Cumulative().Count(); n != 4 {
		t.Errorf("%d values, want all but NaN", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	v := 1.0
	for b.Loop() {
		h.Record(v)
		if v *= 1.1; v > 1e6 {
			v = 1
		}
	}
}
