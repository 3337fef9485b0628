package snowmint

import "context"

// Namespace has the ids of one namespace. Any number of goroutines may use it. All handles of a name share their ids.
type Namespace struct {
	source source
}

// Name returns the name of the namespace.
func (n *Namespace) Name() string {
	return n.source.name
}

// Next returns the next id.
//
// It takes nanoseconds while ids are in memory, even after the end of ctx. Otherwise it waits for a server, up to Options.Timeout
// or until ctx ends. The error is an [*Error]: [Kind] says which ones to retry. If ctx ended the wait, errors.Is(err, ctx.Err()).
func (n *Namespace) Next(ctx context.Context) (ID, error) {
	if id, isLow, ok := n.source.buffer.drawOne(); ok {
		if isLow {
			n.source.refill()
		}
		return ID(id), nil
	}
	got, err := n.source.take(ctx, 1)
	if err != nil {
		return 0, err
	}
	return ID(got[0].first), nil
}

// NextN returns count ids, 1 to 1,000,000: first those in memory, the rest from the servers. The errors are those of Next, and
// [InvalidCount]. Ids drawn before an error are lost.
func (n *Namespace) NextN(ctx context.Context, count int) ([]ID, error) {
	got, err := n.source.takeN(ctx, count)
	if err != nil {
		return nil, err
	}
	ids := make([]ID, 0, count)
	for _, s := range got {
		for id, left := s.first, s.count; left > 0; id, left = id+s.step, left-1 {
			ids = append(ids, ID(id))
		}
	}
	return ids, nil
}

// TryNext returns the next id if one is in memory; ok says so. It never waits: if there is none, it starts a request in the
// background. It has no error but those of a closed client and an invalid name. With a buffer of 0 it never returns an id.
func (n *Namespace) TryNext() (id ID, ok bool, err error) {
	got, ok, err := n.source.tryTake()
	return ID(got.first), ok, err
}

// Buffered returns the number of ids in memory.
func (n *Namespace) Buffered() int {
	return int(n.source.buffered())
}

// DiscardBuffered drops the ids in memory and those on their way. Nothing is requested until the next call.
//
// Call it before a snapshot of the machine or process that may be started more than once: otherwise each copy returns the same
// ids. No other call may be in progress.
func (n *Namespace) DiscardBuffered() {
	n.source.discard()
}

// Texts has the ids of one namespace with a text form, such as "ORD-000017". Any number of goroutines may use it.
type Texts struct {
	source source
}

// Name returns the name of the namespace.
func (t *Texts) Name() string {
	return t.source.name
}

// Next returns the next id as [Namespace.Next] does.
func (t *Texts) Next(ctx context.Context) (string, error) {
	got, err := t.source.take(ctx, 1)
	if err != nil {
		return "", err
	}
	return got[0].texts[0], nil
}

// NextN returns count ids as [Namespace.NextN] does.
func (t *Texts) NextN(ctx context.Context, count int) ([]string, error) {
	got, err := t.source.takeN(ctx, count)
	if err != nil {
		return nil, err
	}
	texts := make([]string, 0, count)
	for _, s := range got {
		texts = append(texts, s.texts...)
	}
	return texts, nil
}

// TryNext returns the next id if one is in memory, as [Namespace.TryNext] does.
func (t *Texts) TryNext() (text string, ok bool, err error) {
	got, ok, err := t.source.tryTake()
	if !ok {
		return "", false, err
	}
	return got.texts[0], true, nil
}

// Buffered returns the number of ids in memory.
func (t *Texts) Buffered() int {
	return int(t.source.buffered())
}

// DiscardBuffered drops the ids in memory and those on their way, as [Namespace.DiscardBuffered] does.
func (t *Texts) DiscardBuffered() {
	t.source.discard()
}

// takeN checks the count of a call for several ids.
func (s *source) takeN(ctx context.Context, count int) ([]span, error) {
	if count < 1 || count > maxRequest {
		return nil, invalidCount(s.name, count)
	}
	return s.take(ctx, int64(count))
}
