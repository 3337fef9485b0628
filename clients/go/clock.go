package snowmint

import (
	"math"
	"time"
)

// An instant is a reading of two clocks, in nanoseconds. The monotonic clock never goes back, but may stop while the machine is
// suspended. The wall clock includes suspended time, but may be set back. An age is the larger of both.
type instant struct {
	mono, wall int64
}

// forever is when ids without a maximum age become too old.
var forever = instant{math.MaxInt64, math.MaxInt64}

// A clock returns the current instant.
type clock func() instant

func systemClock() clock {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{int64(now.Sub(start)), now.UnixNano()}
	}
}

// after returns the instant at which ids of this instant reach an age.
func (t instant) after(age time.Duration) instant {
	if age == Unlimited {
		return forever
	}
	add := func(at int64) int64 {
		if at > math.MaxInt64-int64(age) {
			return math.MaxInt64
		}
		return at + int64(age)
	}
	return instant{add(t.mono), add(t.wall)}
}

// isOver returns whether one of the clocks has reached the instant.
func (t instant) isOver(now instant) bool {
	return t.mono <= now.mono || t.wall <= now.wall
}
