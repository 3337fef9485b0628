package snowmint

import "sync/atomic"

// maxID is the largest id.
const maxID = 1<<63 - 1

// drawnOut is an index beyond each range. Indexes grow from it without overflow.
const drawnOut = 1 << 62

// A span is a part of one range of an answer: ids that increase by one step each, or texts.
type span struct {
	first, step, count int64
	// texts are the ids of a namespace with a text form; first and step are 0 then.
	texts []string
	// until is when the ids become too old to return.
	until instant
}

// part returns count ids from an index on.
func (s span) part(index, count int64) span {
	part := span{first: s.first + index*s.step, step: s.step, count: count, until: s.until}
	if s.texts != nil {
		part.texts = s.texts[index : index+count]
	}
	return part
}

// A turn is the span from which callers draw at present. Callers move its cursor with an atomic addition, so each index goes to
// one of them. An index beyond the span means that it is used up.
type turn struct {
	span
	// mark is the index whose draw reports that few ids are left.
	mark int64
	next atomic.Int64
}

// isYoung returns whether the ids may still be returned. Without a maximum age it reads no clock.
func (t *turn) isYoung(now clock) bool {
	return t.until == forever || !t.until.isOver(now())
}

// end makes the remaining ids impossible to draw, and returns their number.
func (t *turn) end() int64 {
	return t.left(t.next.Swap(drawnOut))
}

func (t *turn) left(next int64) int64 {
	if next >= t.count {
		return 0
	}
	return t.count - next
}

// A buffer keeps ids in memory. Any number of goroutines draw without a lock; the other methods need the lock of the namespace.
type buffer struct {
	now  clock
	turn atomic.Pointer[turn]

	// stock has the spans after the current turn.
	stock []span
	// waiting is the number of ids in stock.
	waiting int64
	// low is the number of ids below which the buffer needs a refill.
	low int64
	// put and dropped count the ids added so far, and those dropped without a draw.
	put, dropped int64
}

func (b *buffer) init(now clock) {
	b.now = now
	b.turn.Store(new(turn))
}

// drawOne draws the first id. isLow means that this draw took the buffer below its low mark.
func (b *buffer) drawOne() (id int64, isLow, ok bool) {
	t := b.turn.Load()
	if t.until != forever && t.until.isOver(b.now()) {
		return 0, false, false
	}
	index := t.next.Add(1) - 1
	if index >= t.count {
		return 0, false, false
	}
	return t.first + index*t.step, index == t.mark, true
}

// draw draws up to count ids of the current turn.
func (b *buffer) draw(count int64) (drawn span, isLow, ok bool) {
	t := b.turn.Load()
	if !t.isYoung(b.now) {
		return span{}, false, false
	}
	// Without an id nothing is added, so that calls for many ids never make the index overflow.
	if t.next.Load() >= t.count {
		return span{}, false, false
	}
	index := t.next.Add(count) - count
	if index >= t.count {
		return span{}, false, false
	}
	if count > t.count-index {
		count = t.count - index
	}
	return t.part(index, count), index <= t.mark && t.mark < index+count, true
}

// advance begins the next turn if the current one has no ids. It returns whether there are ids now.
func (b *buffer) advance() bool {
	current := b.turn.Load()
	if current.left(current.next.Load()) > 0 && current.isYoung(b.now) {
		return true
	}
	b.dropped += current.end()
	b.dropOld(b.now())
	if len(b.stock) == 0 {
		return false
	}
	next := &turn{span: b.stock[0]}
	b.stock = b.stock[1:]
	b.waiting -= next.count
	next.mark = next.count + b.waiting - b.low
	if next.mark < 0 {
		next.mark = 0
	}
	b.turn.Store(next)
	return true
}

// add adds ids behind all others.
func (b *buffer) add(spans []span) {
	for _, s := range spans {
		b.stock = append(b.stock, s)
		b.waiting += s.count
		b.put += s.count
	}
}

// clear drops every id.
func (b *buffer) clear() {
	b.dropped += b.turn.Load().end() + b.waiting
	b.stock, b.waiting = nil, 0
}

// level returns the number of ids left, and of ids drawn so far.
func (b *buffer) level() (left, drawn int64) {
	now := b.now()
	b.dropOld(now)
	t := b.turn.Load()
	inTurn := t.left(t.next.Load())
	drawn = b.put - b.dropped - b.waiting - inTurn
	if t.until.isOver(now) {
		inTurn = 0
	}
	return b.waiting + inTurn, drawn
}

func (b *buffer) dropOld(now instant) {
	for len(b.stock) > 0 && b.stock[0].until.isOver(now) {
		b.waiting -= b.stock[0].count
		b.dropped += b.stock[0].count
		b.stock = b.stock[1:]
	}
}
