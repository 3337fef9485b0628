package snowmint

import (
	"math/rand"
	"sort"
	"sync"
	"time"
)

const (
	// leftOut is how long a server is tried last after its first failure; doubled after each further one.
	leftOut        = 100 * time.Millisecond
	longestLeftOut = 10 * time.Second
	// firstPause is the pause after every server failed; doubled after each further round.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	// hedges is how many hedged requests may follow each other. Each requestsPerHedge requests allow one more, so that hedging
	// does not double the load when all servers are slow.
	hedges           = 10
	requestsPerHedge = 10
)

// health is the state of a server, or of a namespace at a server.
type health struct {
	failures int
	// leftOutUntil: until then, other servers are tried first.
	leftOutUntil time.Time
	// notBefore: until then, the server gets no requests (Retry-After).
	notBefore time.Time
}

// A choice decides which server is tried next. Servers are tried in the order of the list; those that failed come last for a
// while. Its lock guards the health of each namespace too.
type choice struct {
	mu      sync.Mutex
	servers []health
	random  *rand.Rand
	// credit is the credit for hedged requests, in requests.
	credit int
}

func newChoice(servers int, random *rand.Rand) *choice {
	return &choice{servers: make([]health, servers), random: random, credit: hedges * requestsPerHedge}
}

// order returns the servers in the order in which to try them: those that work, then those left out, by when they return. Servers
// that asked for a later retry are missing. own is the health of the namespace at each server.
func (c *choice) order(own []health, now time.Time) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var order []int
	for server := range c.servers {
		if !c.notBefore(own, server).After(now) {
			order = append(order, server)
		}
	}
	until := func(server int) time.Time {
		if at := later(c.servers[server].leftOutUntil, own[server].leftOutUntil); at.After(now) {
			return at
		}
		return time.Time{}
	}
	sort.SliceStable(order, func(a, b int) bool { return until(order[a]).Before(until(order[b])) })
	return order
}

// succeeded records that a server returned ids of a namespace.
func (c *choice) succeeded(own []health, server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[server], own[server] = health{}, health{}
}

// failed records a failure, and how long the server gets no request.
func (c *choice) failed(own []health, server int, of scope, now time.Time, retryAfter time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := &c.servers[server]
	if of == ofNamespace {
		state = &own[server]
	}
	state.leftOutUntil = now.Add(c.jitter(doubled(leftOut, state.failures, longestLeftOut)))
	state.notBefore = now.Add(retryAfter)
	state.failures++
}

// pause returns how long to pause after a round, the first one is 0, in which no server returned ids of the namespace.
func (c *choice) pause(own []health, round int, now time.Time) time.Duration {
	closed := c.closedFor(own, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	pause := c.jitter(doubled(firstPause, round, longestPause))
	if pause < closed {
		return closed
	}
	return pause
}

// closedFor returns how long it takes until some server accepts requests for the namespace again.
func (c *choice) closedFor(own []health, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.notBefore(own, 0)
	for server := range c.servers {
		if at := c.notBefore(own, server); at.Before(first) {
			first = at
		}
	}
	if !first.After(now) {
		return 0
	}
	return first.Sub(now)
}

// notBefore returns the time before which a server gets no requests for the namespace.
func (c *choice) notBefore(own []health, server int) time.Time {
	return later(c.servers[server].notBefore, own[server].notBefore)
}

// requested records a request that is not hedged.
func (c *choice) requested() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit < hedges*requestsPerHedge {
		c.credit++
	}
}

// mayHedge returns whether one more hedged request may be sent now, and records it.
func (c *choice) mayHedge() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit < requestsPerHedge {
		return false
	}
	c.credit -= requestsPerHedge
	return true
}

// jitter returns a duration between half of most and most, so that clients do not return together.
func (c *choice) jitter(most time.Duration) time.Duration {
	return most/2 + time.Duration(c.random.Int63n(int64(most/2)+1))
}

// doubled returns first, doubled so many times, and most at most.
func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	for ; times > 0 && first < most; times-- {
		first *= 2
	}
	if first > most {
		return most
	}
	return first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
