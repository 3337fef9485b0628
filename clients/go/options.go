package snowmint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Unlimited is the longest duration. As a maximum age, ids never become too old; as Options.HedgeAfter, nothing is hedged.
const Unlimited time.Duration = math.MaxInt64

const (
	// connectTimeout is the timeout of connecting to a server, before TLS.
	connectTimeout = time.Second
	// keptIdle is how long an idle connection is kept; shorter than the server's limit.
	keptIdle = time.Minute
)

// Options are the options of a client. The zero value of each one but Servers is its default.
type Options struct {
	// Servers are the URLs of the nodes of one service: http://HOST:PORT or https://…, with a path if a proxy needs it. All must
	// share one store.
	Servers []string
	// Order says which server gets a request first. Default: Shuffled.
	Order Order
	// Token is sent to every server as `Authorization: Bearer`. Over http, anyone on the network path can read it.
	Token string
	// TokenFile is a file with the token. It is read for each request, so a new token takes effect immediately.
	TokenFile string
	// CAFile is a PEM file with the certificate authorities to trust. Default: those of the system.
	CAFile string
	// ClientCertificate has the PEM files of the client's certificate and key, for servers that require one.
	ClientCertificate KeyPair
	// Store is the identity of the store of the servers, as `snowmint doctor` shows it. Ids of any other store are dropped, and
	// ids without a store too. Default: the store of the first answer.
	Store string
	// Timeout is how long a call waits for ids, 1 ms to 1 h. Default: 5 s.
	Timeout time.Duration
	// HedgeAfter is how long a server may take before a second one gets the same request. Default: 50 ms. Unlimited turns it off.
	HedgeAfter time.Duration
	// MaxAge is the maximum age of an id from memory, counted from its request, 1 ms or more. Default: 1 s. Ids of two clients
	// sort by time only up to this age. A call that waits may return ids that are older by its waiting time.
	MaxAge time.Duration
	// NamespaceMaxAge has the maximum age of single namespaces. Use Unlimited for numbers, so that none are dropped.
	NamespaceMaxAge map[string]time.Duration
	// Buffer is how many ids each namespace keeps in memory. Within its bounds the number follows the use. Default: 0 to 1,000,000.
	// Of texts at most 100,000 are kept. With &BufferSize{} nothing is kept, and each call is a request.
	Buffer *BufferSize
}

// Order says which server gets a request first.
type Order int

const (
	// Shuffled: a random one for each client, so that clients share the load.
	Shuffled Order = iota
	// AsListed: the first in the list while it works, then the next; for servers at different distances.
	AsListed
)

// KeyPair names the PEM files of a certificate and its key.
type KeyPair struct {
	CertFile, KeyFile string
}

// BufferSize bounds the number of ids in memory of a namespace, 0 to 1,000,000.
type BufferSize struct {
	Min, Max int
}

// String returns all options but the token.
func (o Options) String() string {
	return fmt.Sprintf("%+v", o.withoutToken())
}

// GoString returns all options but the token.
func (o Options) GoString() string {
	return o.String()
}

// MarshalJSON returns all options but the token, for logs in JSON.
func (o Options) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.withoutToken())
}

// printed has no methods, so that fmt and encoding/json show its fields.
type printed Options

func (o Options) withoutToken() printed {
	if o.Token != "" {
		o.Token = "(set)"
	}
	return printed(o)
}

// withDefaults returns a copy of the options with their defaults, or the first one that is invalid.
func (o Options) withDefaults() (Options, *Error) {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.HedgeAfter == 0 {
		o.HedgeAfter = 50 * time.Millisecond
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Second
	}
	buffer := BufferSize{Max: maxRequest}
	if o.Buffer != nil {
		buffer = *o.Buffer
	}
	o.Buffer = &buffer
	switch {
	case len(o.Servers) == 0:
		return o, &Error{Kind: InvalidOption, Detail: "no server: name one with Options.Servers, such as http://localhost:8080"}
	case o.Order != Shuffled && o.Order != AsListed:
		return o, invalidOption("Order", fmt.Sprint(int(o.Order)), "Shuffled or AsListed")
	case o.Token != "" && o.TokenFile != "":
		return o, invalidOption("Token", "", "either Token or TokenFile, not both")
	case o.Token != "" && !isToken(strings.TrimSpace(o.Token)):
		return o, invalidOption("Token", "", "visible ASCII characters")
	case (o.ClientCertificate.CertFile == "") != (o.ClientCertificate.KeyFile == ""):
		return o, invalidOption("ClientCertificate", fmt.Sprintf("%+v", o.ClientCertificate), "both files")
	case o.Store != "" && !isStoreID(o.Store):
		return o, invalidOption("Store", fmt.Sprintf("%q", o.Store), "smst_ and 26 digits, as `snowmint doctor` shows it")
	case o.Timeout < time.Millisecond || o.Timeout > time.Hour:
		return o, invalidOption("Timeout", o.Timeout.String(), "1 ms to 1 h")
	case o.HedgeAfter < 0:
		return o, invalidOption("HedgeAfter", o.HedgeAfter.String(), "more than 0")
	case o.MaxAge < time.Millisecond:
		return o, invalidOption("MaxAge", o.MaxAge.String(), "at least 1 ms")
	case o.Buffer.Min < 0 || o.Buffer.Min > o.Buffer.Max || o.Buffer.Max > maxRequest:
		return o, invalidOption("Buffer", fmt.Sprintf("%+v", *o.Buffer), "0 <= Min <= Max <= 1000000")
	}
	ages := make(map[string]time.Duration, len(o.NamespaceMaxAge))
	for name, age := range o.NamespaceMaxAge {
		if age < time.Millisecond {
			return o, invalidOption(fmt.Sprintf("NamespaceMaxAge of %q", name), age.String(), "at least 1 ms")
		}
		ages[name] = age
	}
	o.NamespaceMaxAge = ages
	return o, nil
}

// isStoreID returns whether a text has the form of the identity of a store.
func isStoreID(text string) bool {
	digits := strings.TrimPrefix(text, "smst_")
	return len(digits) == 26 && len(text) == 31 && strings.Trim(digits, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// serverURL returns the URL of a server without a slash at its end.
func serverURL(text string) (string, *Error) {
	const form = "http://HOST:PORT or https://HOST:PORT"
	parsed, err := url.Parse(text)
	// No error shows what may be a password.
	mayBeShown := !strings.ContainsAny(text, "@?#")
	switch {
	case err != nil:
		return "", invalidOption("server", "URL", form)
	case parsed.User != nil:
		return "", invalidOption("server", parsed.Host, "no user and password: set a token with Options.Token")
	case parsed.Scheme != "http" && parsed.Scheme != "https", parsed.Hostname() == "":
		if mayBeShown {
			return "", invalidOption("server", fmt.Sprintf("%q", shown(text, longestName)), form)
		}
		return "", invalidOption("server", "URL", form)
	case strings.ContainsAny(text, "?#"):
		return "", invalidOption("server", fmt.Sprintf("%q", shown(parsed.Host, longestName)), "no query")
	}
	return strings.TrimRight(text, "/"), nil
}

// transport returns the connections to all servers. They are opened on demand.
func (o Options) transport() (*http.Transport, *Error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		authorities, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, invalidFile("CAFile", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, invalidFile("CAFile "+o.CAFile, errors.New("the file has no certificate"))
		}
	}
	if o.ClientCertificate.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.ClientCertificate.CertFile, o.ClientCertificate.KeyFile)
		if err != nil {
			return nil, invalidFile("ClientCertificate", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{
		DialContext:     dial,
		TLSClientConfig: config,
		// The end of a request does not end the handshake of its connection.
		TLSHandshakeTimeout: longestAttempt,
		IdleConnTimeout:     keptIdle,
		// One request of each namespace is in flight.
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: longestError,
		DisableCompression:     true,
		// Over HTTP/2 the transport may send a request twice.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}, nil
}
