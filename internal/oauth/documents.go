package oauth

import (
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
	// maxDocuments is how many documents are remembered, and maxFetches how many are fetched at a time.
	maxDocuments = 1000
	maxFetches   = 8
)

// errDocument is a document that cannot be used. It is one error for every reason, so that it tells nothing about the
// network of the service.
var errDocument = errors.New("the document of the client cannot be used")

// errNoDocument is a document that could not be had now.
var errNoDocument = fmt.Errorf("%w: it could not be fetched", errDocument)

// documents are clients whose id is the address of a document about them (draft-ietf-oauth-client-id-metadata-document).
type documents struct {
	net   *outbound.Client
	clock func() time.Time
	slots chan struct{}
	mu    sync.Mutex
	known map[string]fetched
}

// fetched is what is known of an address for some time.
type fetched struct {
	client *knownClient
	err    error
	until  time.Time
}

func newDocuments(net *outbound.Client, clock func() time.Time) *documents {
	return &documents{net: net, clock: clock, slots: make(chan struct{}, maxFetches), known: map[string]fetched{}}
}

// client returns the client with this address. Errors: errDocument, errNoDocument.
func (d *documents) client(ctx context.Context, id string) (*knownClient, error) {
	if !isDocument(id) || d.net.Check(id) != nil {
		return nil, errDocument
	}
	if f, ok := d.remembered(id); ok {
		return f.client, f.err
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return nil, errNoDocument
	}
	if f, ok := d.remembered(id); ok {
		return f.client, f.err
	}
	client, age, err := d.fetch(ctx, id)
	if ctx.Err() == nil {
		d.remember(id, fetched{client, err, d.clock().Add(age)})
	}
	return client, err
}

func (d *documents) remembered(id string) (fetched, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.known[id]
	return f, ok && d.clock().Before(f.until)
}

func (d *documents) remember(id string, f fetched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxDocuments {
		clear(d.known)
	}
	d.known[id] = f
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
	if c.Name == "" {
		c.Name = u.Host
	}
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
		if to.Scheme == u.Scheme && to.Host == u.Host || to.Scheme == "http" && isLoopback(to.Hostname()) {
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
