package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxDocument bounds the document of a client in bytes.
	maxDocument = 16 << 10
	// A document is believed as long as it says, within bounds, and for usualAge when it does not say. That one could not be
	// had is believed for failedAge, so that nobody can make the service ask again and again.
	leastAge  = 5 * time.Minute
	usualAge  = time.Hour
	mostAge   = 24 * time.Hour
	failedAge = 10 * time.Second
	// maxDocuments is how many documents are remembered.
	maxDocuments = 1000
	// Documents that are fetched at a time: in all, from one host, and for one source of requests, which alone can take neither
	// all places nor all those of a host. maxWaiting is how many more requests of a source may wait.
	maxFetches       = 32
	maxHostFetches   = 4
	maxSourceFetches = 2
	maxWaiting       = 16
)

// errDocument is a document that cannot be used. It is one error for every reason, so that it tells nothing about the
// network of the service.
var errDocument = errors.New("oauth: the client metadata document cannot be used")

// errNoDocument means that the document could not be fetched.
var errNoDocument = fmt.Errorf("%w: the document could not be fetched", errDocument)

// errManyFetches means that the document was not fetched because too many requests of its source wait.
var errManyFetches = fmt.Errorf("%w: too many requests from the same source are waiting", errNoDocument)

// documents are clients whose id is the address of a document about them (draft-ietf-oauth-client-id-metadata-document).
type documents struct {
	net                  *outbound.Client
	clock                func() time.Time
	sources, hosts, room *slots
	mu                   sync.Mutex
	known                map[string]*fetched
}

// fetched is what is known of an address for some time.
type fetched struct {
	client *knownClient
	err    error
	until  time.Time
	used   time.Time
	needed bool // a person let the client in
}

func newDocuments(net *outbound.Client, clock func() time.Time) *documents {
	return &documents{
		net: net, clock: clock, known: map[string]*fetched{},
		sources: newSlots(maxSourceFetches, maxWaiting), hosts: newSlots(maxHostFetches, noBound), room: newSlots(maxFetches, noBound),
	}
}

// client returns the client with this address. It may be fetched, for the source of the request (see [OAuth.From]). Errors:
// errDocument, errNoDocument, errManyFetches.
func (d *documents) client(ctx context.Context, id string) (*knownClient, error) {
	u, err := url.Parse(id)
	if err != nil || !isDocument(id) || d.net.Check(id) != nil {
		return nil, errDocument
	}
	if f, ok := d.remembered(id); ok {
		return f.client, f.err
	}
	for _, p := range []struct {
		*slots
		of string
	}{{d.sources, sourceOf(ctx)}, {d.hosts, strings.ToLower(u.Host)}, {d.room, ""}} {
		leave, err := p.enter(ctx, p.of)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if f, ok := d.remembered(id); ok {
		return f.client, f.err
	}
	client, age, err := d.fetch(ctx, id)
	if ctx.Err() == nil {
		d.remember(id, client, err, age)
	}
	return client, err
}

func (d *documents) remembered(id string) (fetched, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, now := d.known[id], d.clock()
	if f == nil || !now.Before(f.until) {
		return fetched{}, false
	}
	f.used = now
	return *f, true
}

func (d *documents) remember(id string, client *knownClient, err error, age time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	old := d.known[id]
	if old == nil && len(d.known) >= maxDocuments {
		d.evict(now)
	}
	d.known[id] = &fetched{client: client, err: err, until: now.Add(age), used: now, needed: old != nil && old.needed}
}

// needs notes that a person let the client with this address in: its document stays longer than those of others.
func (d *documents) needs(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.known[id]; f != nil {
		f.needed = true
	}
}

// evict removes one document: one that has expired, else one that could not be used, else the one that was not used for the
// longest time. Those that are needed go last, or first while they are more than half.
func (d *documents) evict(now time.Time) {
	needed := 0
	for _, f := range d.known {
		if f.needed {
			needed++
		}
	}
	rank := func(f *fetched) int {
		switch {
		case !now.Before(f.until):
			return 0
		case f.err != nil:
			return 1
		case f.needed == (needed > maxDocuments/2):
			return 2
		}
		return 3
	}
	var out string
	var worst *fetched
	for id, f := range d.known {
		if worst == nil || cmp.Or(cmp.Compare(rank(f), rank(worst)), f.used.Compare(worst.used)) < 0 {
			out, worst = id, f
		}
	}
	delete(d.known, out)
}

// isDocument reports whether an id may be the address of a document: it has a path, nothing that is read in two ways, and
// nothing that is not sent.
func isDocument(id string) bool {
	u, err := url.Parse(id)
	if err != nil || strings.Contains(id, "#") || u.Path == "" || u.Path == "/" || u.EscapedPath() != u.Path {
		return false
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == "." || part == ".." {
			return false
		}
	}
	return true
}

func (d *documents) fetch(ctx context.Context, id string) (*knownClient, time.Duration, error) {
	a, err := d.net.Do(ctx, http.MethodGet, id, http.Header{"Accept": {"application/json"}}, nil)
	switch {
	case errors.Is(err, outbound.ErrRefused):
		return nil, failedAge, errDocument
	case err != nil, a.Status >= http.StatusInternalServerError:
		return nil, failedAge, errNoDocument
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || a.Status != http.StatusOK || len(a.Body) > maxDocument || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return nil, failedAge, errDocument
	}
	client, err := readDocument(id, a.Body)
	if err != nil {
		return nil, failedAge, err
	}
	return client, ageOf(a.Header.Get("Cache-Control")), nil
}

// ageOf returns how long an answer is believed.
func ageOf(control string) time.Duration {
	for part := range strings.SplitSeq(strings.ToLower(control), ",") {
		part = strings.TrimSpace(part)
		if part == "no-store" || part == "no-cache" {
			return leastAge
		}
		if text, ok := strings.CutPrefix(part, "max-age="); ok {
			secs, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return leastAge
			}
			return min(max(time.Duration(secs)*time.Second, leastAge), mostAge)
		}
	}
	return usualAge
}

// readDocument reads what a client says of itself. It has no secret, as everybody can read it; its answers go to its own
// host or to this computer, and what else it names is left out.
func readDocument(id string, body []byte) (*knownClient, error) {
	var in struct {
		ID     string  `json:"client_id"`
		Secret *string `json:"client_secret"`
		Method *string `json:"token_endpoint_auth_method"`
		Name   string  `json:"client_name"`
		details
		RedirectURIs []string `json:"redirect_uris"`
		GrantTypes   []string `json:"grant_types"`
	}
	if err := json.Unmarshal(body, &in); err != nil || in.ID != id || in.Secret != nil || in.Method != nil && *in.Method != methodNone {
		return nil, errDocument
	}
	u, err := url.Parse(id)
	if err != nil || !validName(in.Name) || len(in.ClientURI) > maxText || !printable(in.ClientURI) {
		return nil, errDocument
	}
	c := &knownClient{
		Client: Client{ID: id, Name: strings.TrimSpace(in.Name), Site: u.Host, URI: in.ClientURI, refreshes: slices.Contains(in.GrantTypes, grantRefresh)},
		method: methodNone, grants: []string{grantCode},
	}
	c.Name = cmp.Or(c.Name, u.Host)
	for _, word := range []string{grantRefresh, grantDevice} {
		if slices.Contains(in.GrantTypes, word) {
			c.grants = append(c.grants, word)
		}
	}
	var uris []string
	for _, uri := range in.RedirectURIs {
		to, err := url.Parse(uri)
		if err != nil || !toll.ValidRedirect(uri) || len(uris) == maxURIs {
			continue
		}
		if to.Scheme == u.Scheme && to.Host == u.Host || to.Scheme == "http" && toll.IsLoopback(to.Hostname()) {
			c.redirects = append(c.redirects, store.OAuthRedirect{URI: uri})
			uris = append(uris, uri)
		}
	}
	if len(uris) == 0 {
		return nil, errDocument
	}
	slices.Sort(uris)
	shown, err := json.Marshal([]any{c.Name, c.URI, in.LogoURI, uris})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(shown)
	c.digest = sum[:]
	return c, nil
}
