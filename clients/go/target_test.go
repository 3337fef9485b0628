package snowmint

import (
	"math"
	"testing"
	"time"
)

// steady adapts a target to a steady rate: each time, half of it was used.
func steady(t *target, perSecond int64, requests int) {
	now, drawn := time.Duration(0), int64(0)
	for ; requests > 0; requests-- {
		t.adapt(now, drawn, false)
		used := t.size / 2
		if used < 1 {
			used = 1
		}
		now += time.Duration(used * int64(time.Second) / perSecond)
		drawn += used
	}
}

func TestSteadyUseIsKeptForHalfTheAge(t *testing.T) {
	for _, c := range []struct {
		perSecond int64
		maxAge    time.Duration
		size      int64
	}{
		{2000, time.Second, 1000},
		{2000, 100 * time.Millisecond, 100},
		{500, time.Minute, 500},
		{10, time.Second, 5},
		{1_000_000_000, Unlimited, 1_000_000},
	} {
		target := newTarget(BufferSize{Max: 1_000_000}, c.maxAge, maxRequest)
		steady(&target, c.perSecond, 50)
		if target.size < c.size-1 || target.size > c.size+1 {
			t.Errorf("%+v: %d", c, target.size)
		}
	}
}

func TestABurstIsNotTakenForARate(t *testing.T) {
	for _, maxAge := range []time.Duration{time.Millisecond, time.Second, Unlimited} {
		target := newTarget(BufferSize{Max: 1_000_000}, maxAge, maxRequest)
		target.adapt(0, 0, true)
		target.adapt(10*time.Microsecond, 100, true)
		if target.size != 1600 {
			t.Errorf("%v: %d", maxAge, target.size)
		}
	}
}

func TestAfterARestOnlyTheUseCounts(t *testing.T) {
	target := newTarget(BufferSize{Max: 1_000_000}, time.Second, maxRequest)
	target.adapt(0, 0, true)
	target.adapt(time.Millisecond, 1_000_000, true)
	target.adapt(500*time.Millisecond, 1_000_000, false)
	if target.size != 500_000 {
		t.Errorf("%d", target.size)
	}
	target.adapt(time.Second, 1_000_030, true)
	if target.size != 30 || target.request(1, 0) != 31 {
		t.Errorf("%d, request %d", target.size, target.request(1, 0))
	}
}

func TestNoMoreTextsAreKeptThanOneAnswerHas(t *testing.T) {
	target := newTarget(BufferSize{Max: 1_000_000}, Unlimited, maxTexts)
	steady(&target, 1_000_000_000, 50)
	for range []int{1, 2} {
		if target.size != 100_000 || target.request(500_000, 0) != 100_000 {
			t.Errorf("%d, request %d", target.size, target.request(500_000, 0))
		}
		target.fitted()
	}
	if target = newTarget(BufferSize{Min: 500_000, Max: 500_000}, time.Second, maxTexts); target.size != 100_000 {
		t.Errorf("%d", target.size)
	}
}

func TestRareUseKeepsNothing(t *testing.T) {
	target := newTarget(BufferSize{Max: 1_000_000}, time.Second, maxRequest)
	for minute := int64(0); minute < 10; minute++ {
		target.adapt(time.Duration(minute)*time.Minute, minute, true)
	}
	if request, low := target.request(1, 0), target.low(); request != 1 || low != 0 {
		t.Errorf("request %d, low %d", request, low)
	}
}

func TestABufferThatRunsDryGrows(t *testing.T) {
	target := newTarget(BufferSize{Max: 1_000_000}, time.Second, maxRequest)
	for request, drawn := range []int64{0, 16, 48, 112} {
		target.adapt(400*time.Millisecond*time.Duration(request), drawn, true)
	}
	if target.size != 128 {
		t.Errorf("%d", target.size)
	}
	target.adapt(1201*time.Millisecond, 112, true)
	if target.size != 64 {
		t.Errorf("%d: servers that fail must not make it grow", target.size)
	}
}

func TestWithoutABufferOnlyWhatIsWantedIsRequested(t *testing.T) {
	target := newTarget(BufferSize{}, time.Second, maxRequest)
	steady(&target, 1000, 3)
	if one, many, low := target.request(1, 0), target.request(500, 0), target.low(); one != 1 || many != 500 || low != 0 {
		t.Errorf("%d, %d, low %d", one, many, low)
	}
}

func TestASlowLayoutIsAskedForFewer(t *testing.T) {
	target := newTarget(BufferSize{Max: 1_000_000}, time.Second, maxRequest)
	many := int64(math.MaxInt64 / 2)
	expect := func(want int64) {
		t.Helper()
		if got := target.request(many, 0); got != want {
			t.Errorf("%d: expected %d", got, want)
		}
	}
	expect(1_000_000)
	target.tooMany(1_000_000)
	target.tooMany(250_000)
	expect(62_500)
	target.fitted()
	expect(125_000)
	target.tooMany(1)
	expect(1)
}
