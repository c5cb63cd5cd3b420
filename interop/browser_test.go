package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// browser is a person with chromium.
type browser struct {
	*testing.T
	*role
	program string
}

// inBrowser runs a test with a browser, which is closed when the test ends. Its name is that of the suite in scripts/test.sh.
func inBrowser(t *testing.T, f func(b *browser)) {
	t.Run("chromium", func(t *testing.T) {
		n := findNode(t)
		program, err := findChromium()
		if err != nil {
			t.Skip("not run: chromium is not installed")
		}
		b := &browser{t, n.start(t, n.workDir(t), "browser"), program}
		t.Cleanup(func() {
			must.Check(t, b.do("close", nil, nil))
		})
		f(b)
	})
}

// findChromium returns the program of the browser. Debian has one without windows, which takes two thirds of the processor time.
func findChromium() (string, error) {
	if program, err := exec.LookPath("chromium-headless-shell"); err == nil {
		return program, nil
	}
	return exec.LookPath("chromium")
}

func (b *browser) must(command string, args map[string]any, out any) {
	b.Helper()
	must.Do(b, b.do(command, args, out))
}

// begin opens an empty browser, with or without scripts. What goes wrong in it fails the test.
func (b *browser) begin(scripts bool) { b.open("", scripts, "") }

// open gives a person an empty browser, and makes that person act; wallet is the key of a wallet in it, "" for none.
func (b *browser) open(person string, scripts bool, wallet string) {
	b.Helper()
	b.sane()
	b.must("open", map[string]any{"program": b.program, "scripts": scripts, "person": person, "wallet": wallet}, nil)
	b.Cleanup(b.sane)
}

// turn makes another person act.
func (b *browser) turn(person string) {
	b.Helper()
	b.must("turn", map[string]any{"person": person}, nil)
}

func (b *browser) sane() {
	b.Helper()
	var faults []string
	must.Check(b, b.do("faults", nil, &faults))
	for _, f := range faults {
		b.Errorf("in the browser: %s", f)
	}
}

// visit goes to an address, which has to answer with a status.
func (b *browser) visit(url string, status int) {
	b.Helper()
	var got int
	if b.must("visit", map[string]any{"url": url}, &got); got != status {
		b.Fatalf("GET %s: status %d, want %d", url, got, status)
	}
}

func (b *browser) typeInto(label, text string) {
	b.Helper()
	b.must("type", map[string]any{"label": label, "text": text}, nil)
}

func (b *browser) press(name string) {
	b.Helper()
	b.must("press", map[string]any{"name": name}, nil)
}

// signUpAs signs up with a passkey on the page of signing up.
func (b *browser) signUpAs(name string) {
	b.Helper()
	b.typeInto("Your name, shown to the other members of your workspace", name)
	b.press("Sign up with a passkey")
}

// signIn signs in with an API key on the page of signing in.
func (b *browser) signIn(key string) {
	b.Helper()
	b.press("Use an API key instead")
	b.typeInto("API key", key)
	b.press("Sign in with the key")
}

// read waits until the page shows a text, and returns its address.
func (b *browser) read(text string) (url string) {
	b.Helper()
	b.must("read", map[string]any{"text": text}, &url)
	return url
}

// textOf waits for an element, and returns its text.
func (b *browser) textOf(selector string) (text string) {
	b.Helper()
	b.must("textOf", map[string]any{"selector": selector}, &text)
	return text
}

// picturesIn is a variable of the environment, which names a directory for pictures of pages.
const picturesIn = "TOLL_TEST_PICTURES"

// look examines the page light, dark and narrow.
func (b *browser) look(name string) {
	b.Helper()
	file := os.Getenv(picturesIn)
	if file != "" {
		file = filepath.Join(file, strings.ReplaceAll(name, " ", "-"))
	}
	var wrong []string
	b.must("look", map[string]any{"file": file}, &wrong)
	for _, w := range wrong {
		b.Errorf("page %q: %s", name, w)
	}
}

// fillCard types a card into a page of the double and sends the form.
func (b *browser) fillCard(number, button string) {
	b.Helper()
	b.typeInto("Test card number", number)
	b.typeInto("Expiration date", "12/34")
	b.typeInto("Security code", "123")
	b.press(button)
}
