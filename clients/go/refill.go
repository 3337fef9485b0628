package snowmint

import (
	"context"
	"sync"
	"time"
)

// afterRejection is the time after a final error in which ids are requested only for waiting callers.
const afterRejection = time.Second

// A source has the ids of one namespace: those in memory, the callers that wait for more, and the goroutine that requests them. It
// runs only while there is something to request, and sends one request at a time.
type source struct {
	namespaceState
	buffer  buffer
	fetcher *fetcher
	maxAge  time.Duration
	keeps   bool

	mu     sync.Mutex
	target target
	// waiters are in the order of their calls. Those that have left are removed before the next request, and at sweepAt waiters.
	waiters []*waiter
	sweepAt int
	// wasEmpty: a call that does not wait found no id.
	wasEmpty bool
	// generation counts how often the ids were discarded. Answers to requests of an earlier one are dropped.
	generation uint64
	// drawnIn is the generation of the last call that found no id. Ids are requested ahead of calls only in this generation.
	drawnIn    uint64
	rejectedAt time.Time
	isFilling  bool
	// abandon ends the present request, its retries and hedges.
	abandon context.CancelFunc
	// stopped is why no id is ever returned: the client is closed, or the name is invalid.
	stopped *Error
	// background ends when the client is closed.
	background context.Context
}

// A waiter is a call that waits for ids.
type waiter struct {
	missing int64
	got     []span
	// hasLeft: the call returned without an answer.
	hasLeft bool
	// isRenewed: ids that became too old while the call waited were dropped. Only once, because a call whose answers take longer
	// than the maximum age would never end.
	isRenewed bool
	deadline  time.Time
	answer    chan waited
}

type waited struct {
	spans []span
	err   *Error
}

func (w *waiter) dropOld(now instant) {
	if w.isRenewed {
		return
	}
	young := w.got[:0]
	for _, s := range w.got {
		if s.until.isOver(now) {
			w.missing += s.count
			w.isRenewed = true
		} else {
			young = append(young, s)
		}
	}
	w.got = young
}

// take returns count ids, and waits for those that are not in memory.
func (s *source) take(ctx context.Context, count int64) ([]span, error) {
	var got []span
	// Ids that become too old during the call are replaced by the goroutine, if it has to wait for others.
	for missing := count; ; {
		drawn, isLow, ok := s.buffer.draw(missing)
		if ok {
			got = append(got, drawn)
			if isLow {
				s.refill()
			}
			if missing -= drawn.count; missing == 0 {
				return got, nil
			}
			continue
		}
		w, err := s.enqueue(ctx, got, missing)
		if err != nil {
			return nil, err
		}
		if w != nil {
			return s.wait(ctx, w)
		}
	}
}

// enqueue adds a call to those that wait. It returns nil if there are ids in memory after all.
func (s *source) enqueue(ctx context.Context, got []span, missing int64) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != nil {
		return nil, s.stopped
	}
	if s.buffer.advance() {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, timedOut(s.name, s.fetcher.timeout, err, s.lastFailure())
	}
	w := &waiter{
		missing: missing, got: got, deadline: time.Now().Add(s.fetcher.timeout), answer: make(chan waited, 1),
	}
	s.drawnIn = s.generation
	if len(s.waiters) >= s.sweepAt {
		s.sweep()
		s.sweepAt = 64 + 2*len(s.waiters)
	}
	s.waiters = append(s.waiters, w)
	s.startFilling()
	return w, nil
}

// wait waits for the answer to a call, until its timeout or the end of its context.
func (s *source) wait(ctx context.Context, w *waiter) ([]span, error) {
	timeout := time.NewTimer(time.Until(w.deadline))
	defer timeout.Stop()
	select {
	case answer := <-w.answer:
		return answer.result()
	case <-timeout.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case answer := <-w.answer:
		// It came in the meantime. Its ids would be lost otherwise.
		return answer.result()
	default:
		w.hasLeft = true
		return nil, timedOut(s.name, s.fetcher.timeout, ctx.Err(), s.lastFailure())
	}
}

func (w waited) result() ([]span, error) {
	// A nil *Error in an error would not be nil.
	if w.err != nil {
		return nil, w.err
	}
	return w.spans, nil
}

// tryTake returns one id from memory, and never waits. It requests ids if there are none.
func (s *source) tryTake() (span, bool, error) {
	for {
		if drawn, isLow, ok := s.buffer.draw(1); ok {
			if isLow {
				s.refill()
			}
			return drawn, true, nil
		}
		s.mu.Lock()
		stopped, isAdvanced := s.stopped, s.stopped == nil && s.buffer.advance()
		if stopped == nil && !isAdvanced && s.keeps {
			s.wasEmpty, s.drawnIn = true, s.generation
			s.startFilling()
		}
		s.mu.Unlock()
		if stopped != nil {
			return span{}, false, stopped
		}
		if !isAdvanced {
			return span{}, false, nil
		}
	}
}

// refill requests ids because few are left.
func (s *source) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startFilling()
}

// startFilling starts the goroutine unless it runs. It looks for work again before it ends, so no wake-up is lost.
func (s *source) startFilling() {
	if !s.isFilling && s.stopped == nil {
		s.isFilling = true
		go s.fill()
	}
}

func (s *source) buffered() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, _ := s.buffer.level()
	return left
}

func (s *source) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.wasEmpty = false
	for _, w := range s.sweep() {
		for _, got := range w.got {
			w.missing += got.count
		}
		w.got = nil
	}
	s.buffer.clear()
	if s.abandon != nil && len(s.waiters) == 0 {
		s.abandon()
	}
}

func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == nil {
		s.stopped = closed(s.name)
	}
	s.buffer.clear()
	s.reject(s.stopped)
}

// reject returns an error to every waiting call.
func (s *source) reject(err *Error) {
	for _, w := range s.waiters {
		w.answer <- waited{err: err}
	}
	s.waiters = nil
}

// fill fills the buffer and serves the waiting calls, until nothing is to be requested.
func (s *source) fill() {
	for {
		ctx, count, generation, ok := s.nextRequest()
		if !ok {
			return
		}
		got, out, why := s.fetcher.fetch(ctx, &s.namespaceState, count)
		if !s.settle(count, generation, got, out, why) {
			return
		}
	}
}

// nextRequest returns how many ids to request now, in which context and generation. Without anything to request, the goroutine
// ends.
func (s *source) nextRequest() (ctx context.Context, count int64, generation uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.buffer.now()
	s.serveFromBuffer(now)
	wanted := s.wanted(now)
	left, drawn := s.buffer.level()
	isEmpty := left == 0 && s.wasEmpty
	if left == 0 {
		s.wasEmpty = false
	}
	isLow := left < s.buffer.low && s.drawnIn == s.generation
	rests := !s.rejectedAt.IsZero() && time.Since(s.rejectedAt) < afterRejection
	if s.stopped != nil || wanted == 0 && (rests || !isLow && !isEmpty) {
		s.isFilling = false
		return nil, 0, 0, false
	}
	s.target.adapt(time.Duration(now.mono), drawn, wanted > 0)
	s.buffer.low = s.target.low()
	ctx, s.abandon = context.WithCancel(s.background)
	return ctx, s.target.request(wanted, left), s.generation, true
}

// settle takes the outcome of a request. It returns false if the goroutine has to end.
func (s *source) settle(count int64, generation uint64, got fetched, out outcome, why *failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon()
	switch out {
	case filled:
		s.target.fitted()
		s.rejectedAt = time.Time{}
		s.noteFailure(nil)
		s.deliver(got, generation)
	case tooMany:
		s.target.tooMany(count)
	case rejected:
		s.rejectedAt = time.Now()
		s.reject(why.error(s.name))
	case postponed:
		// Calls that came later may have the time to wait.
		for len(s.waiters) > 0 && time.Until(s.waiters[0].deadline) < why.after {
			s.waiters[0].answer <- waited{err: why.error(s.name)}
			s.waiters = s.waiters[1:]
		}
		// Otherwise the next call starts it again.
		s.isFilling = len(s.sweep()) > 0
	case abandoned:
		s.isFilling = len(s.sweep()) > 0
	default:
		s.noteFailure(why)
		s.rejectLate(time.Now(), why)
		s.isFilling = len(s.sweep()) > 0
	}
	return s.isFilling
}

// rejectLate returns an error to each call whose deadline has passed.
func (s *source) rejectLate(now time.Time, why *failure) {
	for len(s.waiters) > 0 && !s.waiters[0].deadline.After(now) {
		s.waiters[0].answer <- waited{err: timedOut(s.name, s.fetcher.timeout, nil, why)}
		s.waiters = s.waiters[1:]
	}
}

// deliver hands ids to the waiting calls, and the rest to the buffer. If the ids were discarded since their request, they are
// dropped.
func (s *source) deliver(got fetched, generation uint64) {
	if generation != s.generation || s.stopped != nil {
		return
	}
	until := got.sent.after(s.maxAge)
	for i := range got.spans {
		got.spans[i].until = until
	}
	if rest := s.serve(got.spans, s.buffer.now()); s.keeps {
		s.buffer.add(rest)
	}
}

// serve divides ids among the waiting calls, and returns the rest.
func (s *source) serve(spans []span, now instant) []span {
	for len(s.waiters) > 0 {
		w := s.waiters[0]
		if w.hasLeft {
			s.waiters = s.waiters[1:]
			continue
		}
		// Only ids of earlier answers: this one is used however long it took, because the call had to wait for it.
		w.dropOld(now)
		for w.missing > 0 && len(spans) > 0 {
			part := spans[0]
			if part.count > w.missing {
				part = part.part(0, w.missing)
				spans[0] = spans[0].part(w.missing, spans[0].count-w.missing)
			} else {
				spans = spans[1:]
			}
			w.missing -= part.count
			w.got = append(w.got, part)
		}
		if w.missing > 0 {
			break
		}
		w.answer <- waited{spans: w.got}
		s.waiters = s.waiters[1:]
	}
	return spans
}

// serveFromBuffer serves calls that found the buffer empty just before it was filled.
func (s *source) serveFromBuffer(now instant) {
	var spans []span
	for missing := s.wanted(now); missing > 0; {
		drawn, _, ok := s.buffer.draw(missing)
		if !ok && s.buffer.advance() {
			continue
		}
		if !ok {
			break
		}
		missing -= drawn.count
		spans = append(spans, drawn)
	}
	s.serve(spans, now)
}

// wanted returns how many ids the calls wait for that have not left.
func (s *source) wanted(now instant) (wanted int64) {
	for _, w := range s.sweep() {
		w.dropOld(now)
		wanted += w.missing
	}
	return wanted
}

// sweep removes the calls that have left, and returns the others.
func (s *source) sweep() []*waiter {
	staying := s.waiters[:0]
	for _, w := range s.waiters {
		if !w.hasLeft {
			staying = append(staying, w)
		}
	}
	for i := len(staying); i < len(s.waiters); i++ {
		s.waiters[i] = nil
	}
	s.waiters = staying
	return staying
}
