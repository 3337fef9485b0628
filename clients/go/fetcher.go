package snowmint

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// longestAttempt is the timeout of one request to one server; shorter if the caller's timeout is, so that there is time for
	// another server.
	longestAttempt = 2 * time.Second
	// percentToMake is the part of it that the server may spend on making ids.
	percentToMake = 80
)

// A fetcher requests ids from several servers: from one after the other, or from a second one while the first is slow. Each answer
// is used once; if nobody awaits it any more, its ids are lost.
type fetcher struct {
	servers   []string
	transport *http.Transport
	// token is a pointer so that a program that prints its client does not print it.
	token      *token
	now        clock
	timeout    time.Duration
	hedgeAfter time.Duration
	choice     *choice

	requests, hedged, failed atomic.Uint64

	mu    sync.Mutex
	store string
	// storeOf is the server that named the store first; "" if Options.Store did.
	storeOf string
}

// namespaceState is a namespace as requests see it.
type namespaceState struct {
	name   string
	isText bool
	// health is guarded by the lock of the choice.
	health []health

	mu   sync.Mutex
	last *failure
}

func (ns *namespaceState) path() string {
	if ns.isText {
		return "ids"
	}
	return "ranges"
}

// lastFailure returns what failed last since the last answer.
func (ns *namespaceState) lastFailure() *failure {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.last
}

func (ns *namespaceState) noteFailure(f *failure) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	// A second store is what somebody has to know of, whatever else fails too.
	if f == nil || f.kind == AnotherStore || ns.last == nil || ns.last.kind != AnotherStore {
		ns.last = f
	}
}

// fetched is a valid answer.
type fetched struct {
	spans []span
	// sent is when the ids were requested; none is older.
	sent instant
}

// outcome says how a fetch ended.
type outcome int

const (
	// filled: with ids.
	filled outcome = iota
	// nothing: no server returned ids in this round.
	nothing
	// rejected: a server rejected the request.
	rejected
	// tooMany: no server returns this many ids at once.
	tooMany
	// late: the deadline has passed.
	late
	// postponed: every server asked to retry later than the deadline.
	postponed
	// abandoned: the context was canceled.
	abandoned
)

// fetch requests ids until a server returns them, a server rejects the request, or the timeout passes. The failure is set for
// rejected, late and postponed.
func (f *fetcher) fetch(ctx context.Context, ns *namespaceState, count int64) (fetched, outcome, *failure) {
	deadline := time.Now().Add(f.timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for n := 0; ; n++ {
		if ctx.Err() == context.Canceled {
			return fetched{}, abandoned, nil
		}
		got, out, why := f.round(ctx, ns, count, deadline)
		if out != nothing {
			return got, out, why
		}
		now := time.Now()
		last := ns.lastFailure()
		closed := f.choice.closedFor(ns.health, now)
		if ctx.Err() == nil && closed > deadline.Sub(now) {
			said := *unavailable(f.servers[0], "server asked to retry later (Retry-After)")
			if last != nil && last.hasAfter {
				said = *last
			}
			said.after, said.hasAfter = closed, true
			return fetched{}, postponed, &said
		}
		pause := time.NewTimer(f.choice.pause(ns.health, n, now))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if ctx.Err() == context.Canceled {
				return fetched{}, abandoned, nil
			}
			if last == nil {
				last = f.noAnswer(f.servers[0], f.timeout)
			}
			return fetched{}, late, last
		}
	}
}

// attemptTimeout returns the timeout of one request to one server.
func (f *fetcher) attemptTimeout() time.Duration {
	if f.timeout/2 < longestAttempt {
		return f.timeout / 2
	}
	return longestAttempt
}

func (f *fetcher) noAnswer(server string, within time.Duration) *failure {
	return unavailable(server, fmt.Sprintf("no answer within %v", within.Round(time.Millisecond)))
}

// settled is how one request to one server ended.
type settled struct {
	server int
	got    fetched
	failed *failure
}

// A round sends one request to each server at most.
type round struct {
	*fetcher
	ns       *namespaceState
	count    int64
	deadline time.Time
	// waiting has the servers that have not answered, and when they got the request.
	waiting map[int]time.Time
	// spent are servers whose quota may have fewer ids left. They get the next request only if no other server returns ids.
	spent []settled
	// isOverQuota means that fewer ids may be had.
	isOverQuota bool
	// distrusted is the number of servers whose certificate or store is another one.
	distrusted int
}

func (f *fetcher) round(ctx context.Context, ns *namespaceState, count int64, deadline time.Time) (fetched, outcome, *failure) {
	order := f.choice.order(ns.health, time.Now())
	if len(order) > 0 {
		f.choice.requested()
	}
	r := round{fetcher: f, ns: ns, count: count, deadline: deadline, waiting: map[int]time.Time{}}
	// Nobody reads an answer that arrives after the round, so its ids are lost.
	answers := make(chan settled, len(order))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { r.abandon(ctx.Err() == context.Canceled) }()
	var hedge *time.Timer
	var hedgeDue <-chan time.Time
	for ask := true; ; {
		if ask && len(order) > 0 {
			server := order[0]
			order = order[1:]
			r.waiting[server] = time.Now()
			go func() { answers <- f.attempt(ctx, server, ns, count, deadline) }()
			if hedge != nil {
				hedge.Stop()
			}
			hedge, hedgeDue = nil, nil
			if len(order) > 0 && f.hedgeAfter != Unlimited {
				hedge = time.NewTimer(f.hedgeAfter)
				hedgeDue = hedge.C
				defer hedge.Stop()
			}
		} else if len(r.waiting) == 0 {
			if r.isOverQuota && count > 1 {
				return fetched{}, tooMany, nil
			}
			return fetched{}, nothing, nil
		}
		select {
		case answer := <-answers:
			if out, why := r.settle(answer); out != nothing {
				return answer.got, out, why
			}
			ask = true
		case <-hedgeDue:
			hedgeDue = nil
			if ask = f.choice.mayHedge(); ask {
				f.hedged.Add(1)
			}
		case <-ctx.Done():
			return fetched{}, nothing, nil
		}
	}
}

// attempt sends the request to one server.
func (f *fetcher) attempt(ctx context.Context, server int, ns *namespaceState, count int64, deadline time.Time) settled {
	s := settled{server: server, got: fetched{sent: f.now()}}
	f.requests.Add(1)
	limit := f.attemptTimeout()
	if rest := time.Until(deadline); limit > rest {
		limit = rest
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	url := f.servers[server]
	var spans []span
	var store string
	var failed *failure
	token, err := f.token.read(ctx)
	if err != nil {
		failed = &failure{server: url, kind: Unauthorized, detail: err.Error(), retry: never}
	} else {
		spans, store, failed = f.request(ctx, url, token, ns, count, limit*percentToMake/100)
	}
	switch {
	case failed != nil && failed.status != 0:
		s.failed = failed
	case ctx.Err() != nil:
		// Also if ids arrived after the deadline.
		s.failed = f.noAnswer(url, limit)
	case failed != nil:
		s.failed = failed
	default:
		s.got.spans = spans
		s.failed = f.checkStore(url, store, token)
	}
	return s
}

// settle takes what a server answered. The outcome is nothing if another server may return ids.
func (r *round) settle(s settled) (outcome, *failure) {
	delete(r.waiting, s.server)
	if s.failed == nil {
		for _, spent := range r.spent {
			r.fail(spent.server, spent.failed)
		}
		r.choice.succeeded(r.ns.health, s.server)
		return filled, nil
	}
	r.failed.Add(1)
	isBeyond := s.failed.hasAfter && time.Now().Add(s.failed.after).After(r.deadline)
	if r.count > 1 && s.failed.kind == OverQuota && isBeyond {
		r.spent = append(r.spent, s)
	} else {
		r.fail(s.server, s.failed)
	}
	switch s.failed.retry {
	case never:
		return rejected, s.failed
	case fewer:
		if r.count > 1 {
			return tooMany, nil
		}
	case afterRepair:
		// No retry within the caller's timeout will help.
		if r.distrusted++; r.distrusted == len(r.servers) {
			return rejected, s.failed
		}
	}
	r.isOverQuota = r.isOverQuota || s.failed.kind == OverQuota
	r.ns.noteFailure(s.failed)
	return nothing, nil
}

func (r *round) fail(server int, f *failure) {
	// After the others, the server is healthy.
	if f.retry == elsewhere || f.retry == afterRepair {
		r.choice.failed(r.ns.health, server, f.scope, time.Now(), f.after)
	}
}

// abandon gives up the servers that have not answered. Those that had enough time count as failed, unless nobody wants an answer.
func (r *round) abandon(isCanceled bool) {
	now := time.Now()
	for server, asked := range r.waiting {
		r.failed.Add(1)
		if waited := now.Sub(asked); !isCanceled && (waited >= r.hedgeAfter || waited >= r.attemptTimeout()) {
			r.choice.failed(r.ns.health, server, ofServer, now, 0)
		}
	}
}

// checkStore rejects ids of another store. The first store that an answer names is the client's, unless Options.Store is set.
func (f *fetcher) checkStore(server, named, token string) *failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case named == f.store:
		return nil
	case f.store == "":
		f.store, f.storeOf = named, server
		return nil
	case named == "" && f.storeOf != "":
		// A server of an earlier version, or behind a proxy that removes headers.
		return nil
	}
	own := f.store + ", as set with Options.Store"
	if f.storeOf != "" {
		own = f.store + ", the store of " + f.storeOf
	}
	detail := "the answer names no store: expected " + own
	if named != "" {
		detail = fmt.Sprintf("the ids are of another store, %s: expected %s", hidden(named, token, longestName), own)
	}
	return &failure{server: server, kind: AnotherStore, status: http.StatusOK, detail: detail, retry: afterRepair}
}

func (f *fetcher) storeID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store
}
