package snowmint

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Kind is the kind of an error, and says what to do about it. It is a target for [errors.Is]:
//
//	if errors.Is(err, snowmint.OverQuota) { … }
type Kind int

const (
	// Unavailable: no server returned ids within the timeout, or before the context ended. Retry later; check that a server runs
	// and can be reached.
	Unavailable Kind = iota + 1
	// OverQuota: the token has used up its quota of ids. Retry later, or raise the quota.
	OverQuota
	// Unauthorized: the server requires a token, or rejected the given one (401). Do not retry.
	Unauthorized
	// Forbidden: the token does not allow this namespace (403). Do not retry.
	Forbidden
	// UnknownNamespace: the server does not have this namespace (404). Its text says how to create it. Do not retry.
	UnknownNamespace
	// InvalidCertificate: the client trusts no server's certificate, or the servers rejected the client's. Do not retry.
	InvalidCertificate
	// AnotherStore: the ids of the server are of another store than those before, or than Options.Store. Together they may have
	// duplicates, so they were dropped. Correct the servers. Do not retry.
	AnotherStore
	// Rejected: the server rejected the request for another reason, for instance because the ids of the namespace have a text
	// form. Do not retry.
	Rejected
	// InvalidNamespace: the name of the namespace is invalid.
	InvalidNamespace
	// InvalidCount: the count is not 1 to 1,000,000.
	InvalidCount
	// InvalidOption: New cannot use an option.
	InvalidOption
	// Closed: the client was closed.
	Closed
)

// kinds has the name of each kind, and what to do about it.
var kinds = [...]struct{ name, advice string }{
	Unavailable:        {"Unavailable", "check that a server runs and can be reached"},
	OverQuota:          {"OverQuota", "retry later, or raise the quota of the token"},
	Unauthorized:       {"Unauthorized", "set a valid token with Options.Token or Options.TokenFile"},
	Forbidden:          {"Forbidden", "use a token with the right `mint` for this namespace"},
	UnknownNamespace:   {"UnknownNamespace", ""},
	InvalidCertificate: {"InvalidCertificate", "check the certificates of the servers, and Options.CAFile and Options.ClientCertificate"},
	AnotherStore:       {"AnotherStore", "its ids were dropped: correct the list of servers, or the store of that server"},
	Rejected:           {"Rejected", "do not retry"},
	InvalidNamespace:   {"InvalidNamespace", ""},
	InvalidCount:       {"InvalidCount", ""},
	InvalidOption:      {"InvalidOption", ""},
	Closed:             {"Closed", "create a new client"},
}

// String returns the name of the kind, such as "Unavailable".
func (k Kind) String() string {
	if k < Unavailable || k > Closed {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kinds[k].name
}

// Error returns the name of the kind, such as "snowmint: Unavailable". It makes a kind a target for [errors.Is].
func (k Kind) Error() string {
	return "snowmint: " + k.String()
}

// Error says why a call returned no ids, or why New cannot use its options. It never contains a token or a password.
type Error struct {
	// Kind is the kind of error.
	Kind Kind
	// Namespace is the name of the namespace; "" for an error of New.
	Namespace string
	// Server is the URL of the server that rejected the request, or that failed last; "" if unknown.
	Server string
	// Status is the HTTP status of the server's answer; 0 if there was none.
	Status int
	// RetryAfter is how long to wait before a retry, at most 1 min; 0 if no server said so.
	RetryAfter time.Duration
	// Detail says what happened.
	Detail string

	cause error
}

// Error returns what happened and what to do.
func (e *Error) Error() string {
	advice := ""
	if e.Kind >= Unavailable && e.Kind <= Closed && kinds[e.Kind].advice != "" {
		advice = "; " + kinds[e.Kind].advice
	}
	return "snowmint: " + e.Detail + advice
}

// Is returns whether target is the kind of this error.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == e.Kind
}

// Unwrap returns the cause: the error of the context if it ended the call, or that of a file that New cannot read.
func (e *Error) Unwrap() error {
	return e.cause
}

// Temporary returns whether the same call may succeed later.
func (e *Error) Temporary() bool {
	return e.Kind == Unavailable || e.Kind == OverQuota
}

func invalidOption(option, value, expected string) *Error {
	return &Error{Kind: InvalidOption, Detail: strings.TrimSpace("invalid "+option+" "+value) + ": expected " + expected}
}

func invalidFile(option string, cause error) *Error {
	return &Error{Kind: InvalidOption, Detail: fmt.Sprintf("cannot use %s: %v", option, cause), cause: cause}
}

func invalidNamespace(name string) *Error {
	return &Error{
		Kind: InvalidNamespace, Namespace: name,
		Detail: fmt.Sprintf("invalid namespace name %q: expected 1 to 64 letters, digits, '.', '_', '-' or ':'", shown(name, longestName)),
	}
}

func invalidCount(namespace string, count int) *Error {
	return &Error{
		Kind: InvalidCount, Namespace: namespace,
		Detail: fmt.Sprintf("invalid count %d: expected 1 to %d", count, maxRequest),
	}
}

func closed(namespace string) *Error {
	return &Error{Kind: Closed, Namespace: namespace, Detail: "the client is closed"}
}

// timedOut returns the error of a call that got no ids in time. ended is the error of its context, nil at the client's timeout.
func timedOut(namespace string, timeout time.Duration, ended error, last *failure) *Error {
	within := "within " + timeout.String()
	if ended != nil {
		within = "before the end of the call (" + ended.Error() + ")"
	}
	e := &Error{Kind: Unavailable}
	why := "no server has answered"
	if last != nil {
		e = last.error(namespace)
		why = e.Detail
	}
	e.Namespace, e.cause = namespace, ended
	e.Detail = fmt.Sprintf("no ids of namespace %q %s: %s", namespace, within, why)
	return e
}

// A failure is one failed request.
type failure struct {
	server string
	// kind is what the caller gets if no later request succeeds.
	kind   Kind
	status int
	detail string
	retry  retry
	// after is the server's Retry-After, if hasAfter is set. At most longestRetryAfter.
	after    time.Duration
	hasAfter bool
	scope    scope
}

// error returns the failure as the error of a call.
func (f *failure) error(namespace string) *Error {
	return &Error{
		Kind: f.kind, Namespace: namespace, Server: f.server, Status: f.status, RetryAfter: f.after,
		Detail: f.server + ": " + f.detail,
	}
}

// retry says whether and where to retry a failed request.
type retry int

const (
	// never: every server would answer the same.
	never retry = iota
	// elsewhere: at another server, or later at the same one.
	elsewhere
	// afterRepair: like elsewhere, but the same error returns until somebody replaces a certificate, or corrects a store.
	afterRepair
	// fewer: with fewer ids.
	fewer
)

// scope says which requests a failure affects.
type scope int

const (
	// ofServer: requests for every namespace.
	ofServer scope = iota
	// ofNamespace: requests for this namespace only.
	ofNamespace
)

// Limits in bytes for text of others in an error.
const (
	longestName    = 200
	longestMessage = 4000
)

// shown returns a text of others as an error may show it: short, and without characters that control a terminal.
func shown(text string, most int) string {
	var b strings.Builder
	for i, r := range text {
		if i >= most {
			fmt.Fprintf(&b, "… (%d bytes)", len(text))
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
