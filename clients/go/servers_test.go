package snowmint

import (
	"math/rand"
	"reflect"
	"testing"
	"time"
)

const ms = time.Millisecond

func testServers(count int) (*choice, []health, time.Time) {
	return newChoice(count, rand.New(rand.NewSource(7))), make([]health, count), time.Unix(1_800_000_000, 0)
}

func expectOrder(t *testing.T, c *choice, own []health, now time.Time, want ...int) {
	t.Helper()
	if got := c.order(own, now); !reflect.DeepEqual(got, want) {
		t.Errorf("order %v: expected %v", got, want)
	}
}

// Goal: a server that failed is tried last for 100 ms, whether the server or the namespace failed.
func TestTheFirstServerThatWorksIsAsked(t *testing.T) {
	for _, of := range []scope{ofServer, ofNamespace} {
		c, own, now := testServers(3)
		expectOrder(t, c, own, now, 0, 1, 2)
		c.failed(own, 0, of, now, 0)
		expectOrder(t, c, own, now, 1, 2, 0)
		c.failed(own, 1, of, now.Add(60*ms), 0)
		expectOrder(t, c, own, now.Add(61*ms), 2, 0, 1)
		expectOrder(t, c, own, now.Add(161*ms), 0, 1, 2)
		c.succeeded(own, 0)
		expectOrder(t, c, own, now.Add(61*ms), 0, 2, 1)
	}
}

func TestAServerThatKeepsFailingIsLeftOutLonger(t *testing.T) {
	c, own, now := testServers(2)
	most := 100 * ms
	for failures := 0; failures < 40; failures++ {
		c.failed(own, 0, ofServer, now, 0)
		if got := c.servers[0].leftOutUntil.Sub(now); got < most/2 || got > most {
			t.Errorf("after %d failures: %v, expected %v at most", failures, got, most)
		}
		if most *= 2; most > 10*time.Second {
			most = 10 * time.Second
		}
	}
}

// Goal: a server gets no request before its Retry-After; the later one of the server and the namespace counts.
func TestRetryAfterOfServers(t *testing.T) {
	c, own, now := testServers(2)
	c.failed(own, 0, ofServer, now, 2*time.Second)
	c.failed(own, 0, ofNamespace, now, time.Second)
	c.failed(own, 1, ofNamespace, now, 3*time.Second)
	if got := c.order(own, now.Add(1999*ms)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := c.pause(own, 0, now.Add(time.Second)); got < time.Second {
		t.Errorf("pause %v", got)
	}
	if got := c.closedFor(own, now.Add(500*ms)); got != 1500*ms {
		t.Errorf("closed for %v", got)
	}
	expectOrder(t, c, own, now.Add(2*time.Second), 0)
	expectOrder(t, c, own, now.Add(3*time.Second), 0, 1)
	// Another namespace waits only for the server.
	other := make([]health, 2)
	expectOrder(t, c, other, now, 1)
}

func TestPausesGrow(t *testing.T) {
	c, own, now := testServers(2)
	most := 20 * ms
	for round := 0; round < 40; round++ {
		if got := c.pause(own, round, now); got < most/2 || got > most {
			t.Errorf("round %d: %v, expected %v at most", round, got, most)
		}
		if most *= 2; most > time.Second {
			most = time.Second
		}
	}
}

func TestHedgesAreATenthOfTheRequests(t *testing.T) {
	c, _, _ := testServers(2)
	hedged := func(requests int, counted bool) (n int) {
		for ; requests > 0; requests-- {
			if counted {
				c.requested()
			}
			if c.mayHedge() {
				n++
			}
		}
		return n
	}
	if first, later := hedged(50, false), hedged(1000, true); first != 10 || later != 100 {
		t.Errorf("%d, then %d", first, later)
	}
}
