package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"

	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/must"
)

// objects is an object store with the bucket "vault".
type objects struct {
	*httptest.Server
	backend gofakes3.Backend
	fault   atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // handles a request in place of the store
}

func startStore(t *testing.T, opts ...gofakes3.Option) *objects {
	t.Helper()
	o := &objects{backend: s3mem.New()}
	must.Do(t, o.backend.CreateBucket(t.Context(), "vault"))
	opts = append(opts, gofakes3.WithV4Auth(map[string]string{"key-of-toll": "secret-of-toll"}))
	store := gofakes3.New(o.backend, opts...).Server()
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := o.fault.Load(); f != nil && (*f)(w, r) {
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { o.Close() })
	return o
}

func (o *objects) plain() backup.ObjectStore {
	if o.URL == "" {
		o.Start()
	}
	return backup.ObjectStore{Endpoint: o.URL, AccessKey: "key-of-toll", SecretKey: "secret-of-toll"}
}

func (o *objects) answer(f func(w http.ResponseWriter, r *http.Request) bool) { o.fault.Store(&f) }

func placeOf(t *testing.T, o backup.ObjectStore, at string) backup.Destination {
	t.Helper()
	return must.Get(o.Destination(at))(t)
}

func names(t *testing.T, p backup.Destination) []string {
	t.Helper()
	files := must.Get(p.Files(t.Context()))(t)
	var all []string
	for _, f := range files {
		all = append(all, f.Name)
	}
	return all
}

func get(t *testing.T, p backup.Destination, name string) ([]byte, error) {
	t.Helper()
	in, err := p.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

// large is a content of several parts.
var large = noise(35 << 20)

// Files written to a bucket over TLS, with a verified certificate, are read back unchanged.
func TestS3_Place(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	o.StartTLS()
	stores := o.plain()
	if p := placeOf(t, stores, "s3://vault/toll"); backup.Put(t.Context(), p, t.TempDir(), "a", nil) == nil {
		t.Error("a certificate of nobody was taken")
	}
	stores.Transport = o.Client().Transport
	p := placeOf(t, stores, "s3://vault/toll/")
	for name, content := range map[string][]byte{"b-small": []byte("small"), "a-large": large, "c-empty": {}} {
		must.Do(t, backup.Put(t.Context(), p, t.TempDir(), name, content))
		if got, err := get(t, p, name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := backup.Put(t.Context(), p, t.TempDir(), "b-small", []byte("other")); err == nil || !strings.Contains(err.Error(), "s3://vault/toll/b-small already exists") {
		t.Errorf("a name that is taken: %v", err)
	}
	deeper := placeOf(t, stores, "s3://vault/toll/deeper")
	whole := placeOf(t, stores, "s3://vault")
	for _, other := range []backup.Destination{deeper, whole} {
		must.Do(t, backup.Put(t.Context(), other, t.TempDir(), "other", []byte("x")))
	}
	if got := names(t, p); !slices.Equal(got, []string{"a-large", "b-small", "c-empty"}) {
		t.Errorf("%v", got)
	}
	if got := names(t, whole); !slices.Equal(got, []string{"other"}) {
		t.Errorf("%v", got)
	}
	if err := p.Remove(t.Context(), "b-small"); err != nil || len(names(t, p)) != 2 {
		t.Errorf("%v, %v", err, names(t, p))
	}
	if _, err := get(t, p, "b-small"); err == nil || !strings.Contains(err.Error(), "no such backup") {
		t.Errorf("a backup that is not there: %v", err)
	}
}

// A list of more than one page is read to its end, and old backups are removed from its beginning.
func TestS3_ManyBackups(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	p := placeOf(t, o.plain(), "s3://vault/toll")
	now := time.Now().UTC().Truncate(time.Second)
	put := func(key string) {
		t.Helper()
		must.Get(o.backend.PutObject(t.Context(), "vault", key, nil, strings.NewReader("x"), 1))(t)
	}
	const form = "toll-20060102T150405Z.backup"
	for n := range 2_500 {
		put("toll/" + now.Add(-time.Duration(n+1)*time.Hour).Format(form))
	}
	future := now.Add(300 * time.Hour).Format(form) // of a machine whose clock was wrong
	others := []string{"toll/notes.txt", "toll/toll-20260101T000000Z.backup.part", "toll/deeper/toll-20200101T000000Z.backup", "toll/" + future}
	for _, key := range others {
		put(key)
	}
	s := backup.Schedule{Dir: "s3://vault/toll", Every: time.Hour, Keep: 1_200}
	made := 0
	last, wait, err := s.Run(t.Context(), p, now, func(name string) error {
		made++
		return backup.Put(t.Context(), p, t.TempDir(), name, []byte("new"))
	})
	if err != nil || made != 1 || wait != 0 || !last.Equal(now) {
		t.Fatalf("%v, %v, %v; %d made", last, wait, err, made)
	}
	left := names(t, p)
	for _, key := range others[:2] {
		if !slices.Contains(left, strings.TrimPrefix(key, "toll/")) {
			t.Errorf("%s was removed", key)
		}
	}
	if !slices.Contains(left, future) || len(names(t, placeOf(t, o.plain(), "s3://vault/toll/deeper"))) != 1 {
		t.Error("something that is not of the schedule was removed")
	}
	scheduled, err := backup.List(t.Context(), p, now)
	if err != nil || len(scheduled) != 1_200 || !scheduled[1_199].At.Equal(now) {
		t.Errorf("%d are left, %v", len(scheduled), err)
	}
	last, wait, err = s.Run(t.Context(), p, now.Add(50*time.Minute), func(string) error { t.Error("too soon"); return nil })
	if err != nil || wait != 10*time.Minute || !last.Equal(now) {
		t.Errorf("%v, %v, %v", last, wait, err)
	}
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
		}
		return r.Method == http.MethodDelete
	})
	_, _, err = s.Run(t.Context(), p, now.Add(2*time.Hour), func(name string) error {
		return backup.Put(t.Context(), p, t.TempDir(), name, []byte("new"))
	})
	if err == nil || !strings.Contains(err.Error(), backup.ErrNotRemoved.Error()) {
		t.Errorf("an access key that removes nothing: %v", err)
	}
}

// cut ends the connection of a request.
func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// An upload whose connection is cut is tried again; when that does not help it leaves nothing, neither a backup nor parts.
func TestS3_UploadCut(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	p := placeOf(t, o.plain(), "s3://vault/toll")
	var cuts, few atomic.Int64
	few.Store(2)
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || r.URL.Query().Get("partNumber") != "2" || cuts.Add(1) > few.Load() {
			return false
		}
		_, _ = io.CopyN(io.Discard, r.Body, 5<<20)
		cut(w)
		return true
	})
	must.Do(t, backup.Put(t.Context(), p, t.TempDir(), "again", large))
	if got, err := get(t, p, "again"); err != nil || !bytes.Equal(got, large) || cuts.Load() <= few.Load() {
		t.Errorf("%d bytes, %v, after %d cuts", len(got), err, cuts.Load())
	}
	few.Store(1_000)
	if err := backup.Put(t.Context(), p, t.TempDir(), "never", large); err == nil {
		t.Error("an upload that was cut each time is there")
	}
	if got := names(t, p); !slices.Equal(got, []string{"again"}) {
		t.Errorf("%v", got)
	}
	if got, err := backup.Uploads(t.Context(), p); err != nil || len(got) > 0 {
		t.Errorf("parts are left: %v, %v", got, err)
	}
}

// A killed process leaves parts. Parts of scheduled backups are removed a day later.
func TestS3_AbandonedUploads(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	p := placeOf(t, o.plain(), "s3://vault/toll")
	const scheduled, other = "toll-20261121T030000Z.backup", "by-hand.backup"
	for _, name := range []string{scheduled, other} {
		ctx, kill := context.WithCancel(t.Context())
		o.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodDelete && r.URL.Query().Get("partNumber") != "2" {
				return false
			}
			kill()
			cut(w)
			return true
		})
		if err := backup.Put(ctx, p, t.TempDir(), name, large); err == nil {
			t.Fatal("it was not killed")
		}
	}
	o.answer(func(http.ResponseWriter, *http.Request) bool { return false })
	for _, c := range []struct {
		after time.Duration
		want  []string
	}{{time.Hour, []string{other, scheduled}}, {25 * time.Hour, []string{other}}} {
		must.Do(t, backup.Tidy(t.Context(), p, time.Now().Add(c.after)))
		if got, err := backup.Uploads(t.Context(), p); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("after %v: %v, %v", c.after, got, err)
		}
	}
	if got := names(t, p); len(got) > 0 {
		t.Errorf("a half-written backup has a name: %v", got)
	}
}

// A download resumes after its connection is cut. If the store is unreachable, the error says so, and not that the backup is damaged.
func TestS3_DownloadCut(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	p := placeOf(t, o.plain(), "s3://vault/toll")
	must.Do(t, backup.Put(t.Context(), p, t.TempDir(), "a", large))
	var gets atomic.Int64
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		if gets.Add(1) > 4 {
			return false
		}
		whole := httptest.NewRecorder()
		r.Header.Del("If-Match")
		gofakes3.New(o.backend).Server().ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/3])
		_ = http.NewResponseController(w).Flush()
		cut(w)
		return true
	})
	if got, err := get(t, p, "a"); err != nil || !bytes.Equal(got, large) || gets.Load() < 4 {
		t.Errorf("%d bytes, %v, in %d requests", len(got), err, gets.Load())
	}
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			cut(w)
		}
		return r.Method == http.MethodGet
	})
	if _, err := get(t, p, "a"); err == nil || !strings.Contains(err.Error(), "s3://vault/toll/a") {
		t.Errorf("a store that is gone: %v", err)
	}
}

// The store verifies the checksum of an upload. A truncated backup, or one replaced while it is read, is rejected.
func TestS3_OtherContent(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	p := placeOf(t, o.plain(), "s3://vault/toll")
	o.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && r.Header.Get("Content-Md5") == "" {
			t.Error("a part has no checksum that the store could compare")
		}
		return false
	})
	for name, content := range map[string][]byte{"small": noise(1 << 20), "large": large} {
		must.Check(t, backup.Put(t.Context(), p, t.TempDir(), name, content))
	}
	var put atomic.Bool
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		put.CompareAndSwap(false, r.Method == http.MethodPut)
		if r.Method != http.MethodHead || !put.Load() {
			return false
		}
		for name, value := range map[string]string{"Content-Length": "3", "Etag": `"x"`, "Last-Modified": time.Now().UTC().Format(http.TimeFormat)} {
			w.Header().Set(name, value)
		}
		return true
	})
	if err := backup.Put(t.Context(), p, t.TempDir(), "a", noise(1<<20)); err == nil || !strings.Contains(err.Error(), "3 of 1048576 bytes") {
		t.Errorf("a store that keeps a part: %v", err)
	}

	o.answer(func(http.ResponseWriter, *http.Request) bool { return false })
	must.Do(t, backup.Put(t.Context(), p, t.TempDir(), "b", large))
	in := must.Get(p.Open(t.Context(), "b"))(t)
	defer in.Close()
	must.Do(t, p.Remove(t.Context(), "b"))
	must.Do(t, backup.Put(t.Context(), p, t.TempDir(), "b", slices.Repeat([]byte("other"), len(large)/5)))
	if got, err := io.ReadAll(in); err == nil {
		t.Errorf("%d bytes of another object were read", len(got))
	}
}

// Keys that are wrong and a clock that is wrong are named.
func TestS3_Refused(t *testing.T) {
	t.Parallel() // it mostly waits
	o := startStore(t)
	wrong := o.plain()
	wrong.SecretKey = "another-secret"
	skewed := startStore(t, gofakes3.WithTimeSource(gofakes3.FixedTimeSource(time.Now().Add(time.Hour))))
	unknown := o.plain()
	unknown.AccessKey = "key-of-nobody"
	for want, p := range map[string]backup.Destination{
		"fix the secret of the access key":   placeOf(t, wrong, "s3://vault/toll"),
		"fix the access key":                 placeOf(t, unknown, "s3://vault/toll"),
		"the clock of this machine is wrong": placeOf(t, skewed.plain(), "s3://vault/toll"),
		"create the bucket":                  placeOf(t, o.plain(), "s3://missing/toll"),
	} {
		_, err := p.Files(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, and it should say %q", err, want)
		}
		if err := backup.Put(t.Context(), p, t.TempDir(), "a", []byte("x")); err == nil {
			t.Errorf("%s: the backup was made", want)
		}
	}
}

// A request to a slow store continues while bytes move. A request to a silent store times out.
func TestS3_Slow(t *testing.T) {
	t.Parallel() // it mostly waits
	// A slow machine may pause for most of this time.
	const stall = 3 * time.Second
	o := startStore(t)
	p := placeOf(t, o.plain().Stalling(stall), "s3://vault/toll")
	content := noise(1 << 20)
	slow := func(w http.ResponseWriter, r *http.Request) bool {
		switch r.Method {
		case http.MethodPut:
			var body bytes.Buffer
			for range 8 {
				time.Sleep(stall / 16) // what the kernel has taken moves unseen
				_, _ = io.CopyN(&body, r.Body, 1<<17)
			}
			_, _ = io.Copy(&body, r.Body)
			r.Body = io.NopCloser(&body)
			return false
		case http.MethodGet:
			from := 0 // where a reader goes on that waited too long on a machine that stood still
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("Etag", `"x"`)
			if from > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			for part := range slices.Chunk(content[from:], 1<<17) {
				time.Sleep(stall / 4)
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush()
			}
			return true
		}
		return false
	}
	o.answer(slow)
	must.Do(t, backup.Put(t.Context(), p, t.TempDir(), "a", content))
	if got, err := get(t, p, "a"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	ended := make(chan struct{})
	defer close(ended)
	o.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			<-ended
		}
		return r.Method == http.MethodPut
	})
	began := time.Now()
	p = placeOf(t, o.plain().Stalling(500*time.Millisecond), "s3://vault/toll")
	if err := backup.Put(t.Context(), p, t.TempDir(), "b", content); err == nil || time.Since(began) > time.Minute {
		t.Errorf("a store that says nothing: %v after %v", err, time.Since(began))
	}
}

// Settings that are wrong or careless are refused before anything is sent.
func TestS3_Settings(t *testing.T) {
	t.Parallel() // it mostly waits
	file := func(text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "s3.key")
		must.Do(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	good := file("id\nsecret\n", 0o600)
	for name, c := range map[string]struct {
		at     string
		stores backup.ObjectStore
		want   string
	}{
		"no keys":            {"s3://vault", backup.ObjectStore{}, "TOLL_S3_KEY_FILE"},
		"half a key":         {"s3://vault", backup.ObjectStore{AccessKey: "id"}, "TOLL_S3_KEY_FILE"},
		"a file of all":      {"s3://vault", backup.ObjectStore{KeyFile: file("id secret", 0o644)}, "chmod 600"},
		"a file of one word": {"s3://vault", backup.ObjectStore{KeyFile: file("secret", 0o600)}, "must contain"},
		"plain http":         {"s3://vault", backup.ObjectStore{KeyFile: good, Endpoint: "http://s3.example.com"}, "https"},
		"an endpoint's path": {"s3://vault", backup.ObjectStore{KeyFile: good, Endpoint: "https://s3.example.com/vault"}, "TOLL_S3_ENDPOINT"},
		"no bucket":          {"s3:///toll", backup.ObjectStore{KeyFile: good}, "s3://bucket/prefix"},
		"a query":            {"s3://vault/toll?a=b", backup.ObjectStore{KeyFile: good}, "s3://bucket/prefix"},
	} {
		if _, err := c.stores.Destination(c.at); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, at := range []string{"s3://vault", "s3://vault/"} {
		if _, _, err := (backup.ObjectStore{KeyFile: good}).Split(at); err == nil {
			t.Errorf("%s is the name of a backup", at)
		}
	}
	if err := (backup.Schedule{Dir: "s3://vault", Every: time.Hour, Keep: -1}).Check(backup.ObjectStore{KeyFile: good, Endpoint: "https://s3.example.com"}); err != nil {
		t.Error(err)
	}
}
