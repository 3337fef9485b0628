package snowmint

import (
	"context"
	"crypto/tls"
	"hash/maphash"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// A connection remembers its last valid answer. If a server or a proxy sends an answer twice, net/http takes the second copy for
// the answer to the next request on the connection. After any other answer, the connection is closed.
type connection struct {
	net.Conn
	last atomic.Uint64
}

var answerSeed = maphash.MakeSeed()

// isRepeated returns whether an answer is equal to the one before on the connection, and remembers it.
func (c *connection) isRepeated(answer []byte) bool {
	hash := maphash.Bytes(answerSeed, answer)
	return c.last.Swap(hash) == hash
}

// dial opens a connection to a server.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	opened, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: opened}, nil
}

// traced returns a context of a request, which sets the connection that the request uses.
func traced(ctx context.Context, used **connection) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		conn := got.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		*used, _ = conn.(*connection)
	}})
}
