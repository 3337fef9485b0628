package snowmint

import "time"

const (
	// maxRequest is the maximum number of ids in one request, the same as the server's. It is also that of ids in memory.
	maxRequest = 1_000_000
	// maxTexts is the same for a namespace with a text form.
	maxTexts = 100_000
	// firstTarget is the target before the use is known.
	firstTarget = 16
	// longestHorizon is the use that the buffer covers at most.
	longestHorizon = time.Second
	// shortestPart is the part of the horizon over which the use is measured at least: a shorter time says little about the rate.
	shortestPart = 16
)

// A target decides how many ids to keep in memory: the use in half of the maximum age, the horizon. It grows immediately, so that a
// burst is served from memory, but to 16 times the ids of the burst at most. It shrinks by half at most until it has covered a whole
// horizon, so that the first call after a rest requests only what it needs.
type target struct {
	min, max int64
	horizon  time.Duration
	size     int64
	// limit is the server's maximum count of one request, and most the present one. It shrinks when no server returns that many.
	limit, most int64
	// isMeasuring means that ids were requested before: then, when `drawn` ids had been drawn.
	isMeasuring bool
	then        time.Duration
	drawn       int64
}

func newTarget(bounds BufferSize, maxAge time.Duration, limit int64) target {
	t := target{min: int64(bounds.Min), max: int64(bounds.Max), horizon: maxAge / 2, limit: limit, most: limit}
	if t.horizon > longestHorizon {
		t.horizon = longestHorizon
	}
	t.size = t.within(firstTarget)
	return t
}

func (t *target) within(size int64) int64 {
	if size > t.max {
		size = t.max
	}
	if size < t.min {
		size = t.min
	}
	if size > t.limit {
		size = t.limit
	}
	return size
}

// adapt adapts to the use. now is a monotonic time, drawn the number of ids drawn so far, and ranDry whether callers wait.
func (t *target) adapt(now time.Duration, drawn int64, ranDry bool) {
	if t.isMeasuring {
		since, used := now-t.then, drawn-t.drawn
		if shortest := t.horizon / shortestPart; since < shortest {
			since = shortest
		}
		isPart := since < t.horizon
		size := int64(float64(used) * float64(t.horizon) / float64(since))
		// If nothing was drawn, callers wait because servers fail.
		if isPart && ranDry && used > 0 && size < 2*t.size {
			size = 2 * t.size
		}
		if isPart && size < t.size/2 {
			size = t.size / 2
		}
		t.size = t.within(size)
	}
	t.isMeasuring, t.then, t.drawn = true, now, drawn
}

// low returns the number of ids below which the buffer is refilled.
func (t *target) low() int64 {
	return t.size / 2
}

// request returns the number of ids to request: those that callers wait for, and what the buffer lacks.
func (t *target) request(wanted, left int64) int64 {
	count := wanted
	if t.size > left {
		count += t.size - left
	}
	if count > t.most {
		count = t.most
	}
	if count < 1 {
		count = 1
	}
	return count
}

// fitted records that a server returned as many ids as requested.
func (t *target) fitted() {
	t.most *= 2
	if t.most > t.limit {
		t.most = t.limit
	}
}

// tooMany records that no server returns this many ids.
func (t *target) tooMany(requested int64) {
	t.most = requested / 4
	if t.most < 1 {
		t.most = 1
	}
}
