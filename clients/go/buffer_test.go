package snowmint

import (
	"math"
	"reflect"
	"sync"
	"testing"
	"time"
)

// A testClock is set by hand.
type testClock struct {
	mu  sync.Mutex
	now instant
}

func (c *testClock) read() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.mono += int64(mono)
	c.now.wall += int64(wall)
}

func newTestBuffer() (*buffer, *testClock) {
	clock := &testClock{now: instant{mono: 1e9, wall: 1.8e18}}
	b := new(buffer)
	b.init(clock.read)
	return b, clock
}

func numbers(first, count, step int64, until instant) span {
	return span{first: first, count: count, step: step, until: until}
}

// drawAll draws, count ids at a time, until the buffer is empty.
func drawAll(b *buffer, count int64) (ids []int64) {
	for {
		drawn, _, ok := b.draw(count)
		if !ok && b.advance() {
			continue
		}
		if !ok {
			return ids
		}
		for i := int64(0); i < drawn.count; i++ {
			ids = append(ids, drawn.first+i*drawn.step)
		}
	}
}

func levelOf(b *buffer) [2]int64 {
	left, drawn := b.level()
	return [2]int64{left, drawn}
}

// Goal: each id comes out once, in the order of the ranges, whatever the size of the draws.
func TestIDsComeOnceAndInOrder(t *testing.T) {
	for _, count := range []int64{1, 2, 3, 100} {
		b, _ := newTestBuffer()
		b.add([]span{numbers(10, 3, 1, forever), numbers(20, 4, 5, forever)})
		if got := drawAll(b, count); !reflect.DeepEqual(got, []int64{10, 11, 12, 20, 25, 30, 35}) {
			t.Errorf("%d at a time: %v", count, got)
		}
		b.add([]span{numbers(50, 1, 0, forever)})
		if got := drawAll(b, count); !reflect.DeepEqual(got, []int64{50}) {
			t.Errorf("%d at a time: %v", count, got)
		}
		if got := levelOf(b); got != [2]int64{0, 8} {
			t.Errorf("%d at a time: left and drawn %v", count, got)
		}
	}
}

// Goal: ids are dropped at their age by either clock: after a suspension, which only the wall clock sees, and after the wall clock
// was set back.
func TestOldIDsAreDropped(t *testing.T) {
	for name, steps := range map[string][2]time.Duration{
		"both clocks":            {time.Second, time.Second},
		"suspended":              {time.Millisecond, time.Second},
		"the wall clock is back": {time.Second, -time.Hour},
	} {
		b, clock := newTestBuffer()
		sent := clock.read()
		b.add([]span{numbers(1, 2, 1, sent.after(time.Second)), numbers(20, 2, 1, sent.after(3*time.Second))})
		b.advance()
		clock.advance(time.Second-1, time.Second-1)
		if drawn, _, ok := b.draw(1); !ok || drawn.first != 1 {
			t.Errorf("%s: %v %v before the age", name, drawn, ok)
		}
		clock.advance(steps[0], steps[1])
		if _, _, ok := b.drawOne(); ok {
			t.Errorf("%s: an old id was drawn", name)
		}
		if got := levelOf(b); got != [2]int64{2, 1} {
			t.Errorf("%s: left and drawn %v", name, got)
		}
		if got := drawAll(b, 1); !reflect.DeepEqual(got, []int64{20, 21}) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := (instant{5, 6}).after(math.MaxInt64 - 1); got != (instant{math.MaxInt64, math.MaxInt64}) {
		t.Errorf("an age near the limit overflows: %v", got)
	}
}

// Goal: after clear, nothing of before comes out, and the counts are right.
func TestClear(t *testing.T) {
	b, _ := newTestBuffer()
	b.add([]span{numbers(1, 5, 1, forever), numbers(10, 5, 1, forever)})
	b.advance()
	b.draw(2)
	b.clear()
	if got := drawAll(b, 1); got != nil || levelOf(b) != [2]int64{0, 2} {
		t.Errorf("%v, left and drawn %v", got, levelOf(b))
	}
	b.add([]span{numbers(20, 1, 1, forever)})
	if got := drawAll(b, 1); !reflect.DeepEqual(got, []int64{20}) {
		t.Errorf("%v", got)
	}
}

// Goal: calls that find no id, however many, do not make an index overflow.
func TestEndlessDrawsWithoutIDs(t *testing.T) {
	b, _ := newTestBuffer()
	b.add([]span{numbers(1, 3, 1, forever)})
	b.advance()
	b.clear()
	b.turn.Load().next.Store(math.MaxInt64 - 10)
	for n := 0; n < 3; n++ {
		if drawn, _, ok := b.draw(1_000_000); ok {
			t.Errorf("%+v was drawn", drawn)
		}
	}
}

// Goal: exactly one draw of a turn reports that few ids are left: the one that takes the buffer below the mark.
func TestTheLowMark(t *testing.T) {
	for _, count := range []int64{1, 3, 7} {
		b, _ := newTestBuffer()
		b.low = 10
		b.add([]span{numbers(0, 15, 1, forever), numbers(15, 5, 1, forever)})
		b.advance()
		var lows []int64
		for {
			drawn, isLow, ok := b.draw(count)
			if !ok {
				break
			}
			if isLow {
				lows = append(lows, 20-drawn.first-drawn.count)
			}
		}
		if len(lows) != 1 || lows[0] >= 10 || lows[0] < 10-count {
			t.Errorf("%d at a time: low with %v left", count, lows)
		}
	}
}

// Goal: goroutines that draw at the same time never get the same id, within a turn and while turns begin and end.
func TestConcurrentDraws(t *testing.T) {
	const goroutines = 4
	b, _ := newTestBuffer()
	var sum int64
	for _, count := range []int64{400_000, 1, 2, 7} {
		for i := int64(0); i < 400_000/count && i < 2000; i++ {
			b.add([]span{numbers(sum, count, 1, forever)})
			sum += count
		}
	}
	var lock sync.Mutex
	var begin, group sync.WaitGroup
	begin.Add(goroutines)
	drawn := make([][]int64, goroutines)
	for g := range drawn {
		group.Add(1)
		go func(g int) {
			defer group.Done()
			begin.Done()
			begin.Wait()
			for {
				if id, _, ok := b.drawOne(); ok {
					drawn[g] = append(drawn[g], id)
					continue
				}
				lock.Lock()
				more := b.advance()
				lock.Unlock()
				if !more {
					return
				}
			}
		}(g)
	}
	group.Wait()
	seen := make([]bool, sum)
	for _, ids := range drawn {
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("%d came out twice", id)
			}
			seen[id] = true
			sum--
		}
	}
	if sum != 0 {
		t.Errorf("%d ids did not come out", sum)
	}
}
