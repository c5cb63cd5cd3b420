package interop

import (
	"cmp"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// TestScreens opens each kind of page that links lead to, on a service with a month of sales: as its operator, who sells there, and as
// a stranger. make screens keeps pictures of them, and of what a subscriber and somebody who just signed up see.
func TestScreens(t *testing.T) {
	inBrowser(t, func(b *browser) {
		begun := devService(b.T)
		service, password := begun[1], begun[2]
		b.open("stranger", true, "")
		b.walk("stranger", service+"/explore", "/sign-in", "/sign-up", "/recover", "/w")
		for name, path := range map[string]string{"docs": "/paying", "docs index": "", "docs errors": "/errors", "docs operation": "/api/registerPlan", "docs search": "/search?q=plan", "docs rooms": "/rooms"} {
			b.visit(service+"/docs"+path, http.StatusOK) // the page of all records has the same look, and is long
			b.look("stranger " + name)
		}
		persons := []string{"bob"}
		if os.Getenv(picturesIn) != "" {
			persons = append(persons, "alice", "nora")
		}
		for _, person := range persons {
			b.open(person, true, "")
			if person == "nora" {
				b.visit(service+"/sign-up", http.StatusOK)
				b.signUpAs("Nora")
			} else {
				b.visit(service+"/sign-in", http.StatusOK)
				b.typeInto("Login name", person)
				b.typeInto("Password", password)
				b.press("Sign in")
			}
			seen := b.walk(person, b.read("Needs attention"),
				"components", "holdings", "tokens", "delegations", "cards", "/explore", "/account/security", "/account/access", "/device", "/cards/enroll")
			for _, name := range []string{"plans new", "agents id", "orders id", "webhooks id", "try", "operator"} {
				if person == "bob" && !seen[name] {
					b.Errorf("no link leads to the page %q", name)
				}
			}
		}
		for name, page := range map[string]string{"overview": "bob-overview", "plan": "stranger-p-id", "webhook": "bob-webhooks-id"} {
			b.keep(page, name)
		}
	})
}

// devBegun is what toll dev prints once: its address, and the password of Bob and Alice.
var devBegun = regexp.MustCompile(`(?s)pages +(http://localhost:\d+)/w/0x\S+ .*? password (\w+)\n.*The demo keeps running`)

// devService runs toll dev until the test ends, and returns what [devBegun] finds in what it prints.
func devService(t *testing.T) []string {
	t.Helper()
	var out servertest.Log
	cmd := exec.Command(servertest.Program(t), "dev", "--data", filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(os.Environ(), "TOLL_CONFIG="+filepath.Join(t.TempDir(), "config.json"))
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("toll dev: %v\n%s", err, out.String())
		}
	})
	for end := time.Now().Add(roleWait); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if m := devBegun.FindStringSubmatch(out.String()); m != nil {
			return m
		}
	}
	t.Fatalf("toll dev did not begin:\n%s", out.String())
	return nil
}

var (
	// idPart is a part of a path that names a record.
	idPart = regexp.MustCompile(`^(0x[0-9a-fA-F]+|[0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}|[A-Za-z]+_[A-Za-z0-9_-]{8,})$`)
	// noPage are addresses of files and of documents, of which one has the look of all.
	noPage = regexp.MustCompile(`\.[a-z]+$|/export/|^/docs(/|$)`)
)

// walk opens a page and what links on pages lead to, one page of each kind, and looks at each. more are further addresses. It returns
// the kinds that it saw.
func (b *browser) walk(person, first string, more ...string) map[string]bool {
	b.Helper()
	base := must.Get(url.Parse(first))(b)
	base.Path = strings.TrimSuffix(base.Path, "/") + "/"
	seen := map[string]bool{}
	for next := append([]string{first}, more...); len(next) > 0; next = next[1:] {
		u := must.Get(base.Parse(next[0]))(b)
		var kind []string
		for _, part := range strings.Split(strings.Trim(u.Path, "/"), "/") {
			kind = append(kind, idPart.ReplaceAllString(part, "id"))
		}
		name := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(strings.Join(kind, " "), "w id"), " "), "overview")
		if u.Host != base.Host || noPage.MatchString(u.Path) || seen[name] {
			continue
		}
		seen[name] = true
		b.visit(u.String(), http.StatusOK)
		b.look(person + " " + name)
		var links []string
		b.must("links", nil, &links)
		next = append(next, links...)
	}
	b.Logf("%s saw %d kinds of pages", person, len(seen))
	return seen
}

// mostPicture bounds a picture in the documents, in bytes.
const mostPicture = 150 << 10

// keep puts the upper part of a picture of a page into the documents, when pictures are taken.
func (b *browser) keep(page, name string) {
	b.Helper()
	dir := os.Getenv(picturesIn)
	if dir == "" {
		return
	}
	in, err := os.Open(filepath.Join(dir, page+"-1280-light.png"))
	if err != nil {
		b.Error(err)
		return
	}
	defer in.Close()
	whole, err := png.Decode(in)
	if err != nil {
		b.Error(err)
		return
	}
	part := image.NewRGBA(whole.Bounds().Intersect(image.Rect(0, 0, 1280, 820)))
	draw.Draw(part, part.Bounds(), whole, image.Point{}, draw.Src)
	file := filepath.Join("..", "docs", "pictures", name+".png")
	must.Do(b, os.MkdirAll(filepath.Dir(file), 0o755))
	out, err := os.Create(file)
	if err == nil {
		err = errors.Join((&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, part), out.Close())
	}
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || info.Size() > mostPicture {
		b.Errorf("%s: %v %v, more than %d bytes", file, err, info, mostPicture)
	}
}
