package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// commit returns the commit in the version of the program.
func commit(t *testing.T) string {
	t.Helper()
	return inRoot(t, nil, "git", "rev-parse", "HEAD")[:12]
}

// form is a form of the program: packages contain the form without the embedded chain, and the archives of a release the form with it.
type form struct {
	name, tags string
	chain      bool
}

var forms = []form{{"without the embedded chain", "nodevchain", false}, {"with the embedded chain", "", true}}

// release builds a form of the program as a release of a version, which has the commit in it.
func (f form) release(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toll")
	inRoot(t, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-tags", f.tags,
		"-ldflags=-s -w -X github.com/tollhq/toll/internal/cli.Release="+version, "-o", path, "./cmd/toll")
	return path
}

// packaged returns variables for scripts/package.sh: none for the form that the script builds itself, else an existing program.
func (f form) packaged(t *testing.T, version string) []string {
	t.Helper()
	if !f.chain {
		return nil
	}
	return []string{"PROGRAM=" + f.release(t, version+"+"+commit(t))}
}

// deb builds the Debian package of a version with this form of the program.
func (f form) deb(t *testing.T, version string) string {
	t.Helper()
	out := inRoot(t, f.packaged(t, version), "sh", "scripts/package.sh", "deb", version)
	return filepath.Join("..", "..", strings.TrimSpace(out))
}

// check fails the test unless the output of toll version -o json is from this form of the program.
func (f form) check(t *testing.T, version string) {
	t.Helper()
	var out struct{ EmbeddedChain *bool }
	if err := json.Unmarshal([]byte(version), &out); err != nil || out.EmbeddedChain == nil || *out.EmbeddedChain != f.chain {
		t.Errorf("the program must be %s: %v %s", f.name, err, version)
	}
}

// reason is why a sandbox with an embedded database sells no crypto plans. It is empty if the sandbox sells them.
func (f form) reason() string {
	if f.chain {
		return ""
	}
	return "take the file toll_VERSION_linux_" + runtime.GOARCH + ".tar.gz of a release, or set endpoints with TOLL_CHAIN_RPC_URLS"
}

// startsReady starts a service that must become ready at an address. If reason is not empty, the log must warn about crypto plans with it.
func startsReady(t *testing.T, cmd *exec.Cmd, address, reason string) {
	t.Helper()
	var log servertest.Log
	cmd.Stderr = &log
	must.Do(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	eventually(t, "the service is ready", func() bool {
		res, err := http.Get("http://" + address + "/ready")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	warned(t, log.String(), reason)
}

func warned(t *testing.T, log, reason string) {
	t.Helper()
	if got := strings.Contains(log, "crypto plans cannot be ordered"); got != (reason != "") || !strings.Contains(log, reason) {
		t.Errorf("a warning with the reason %q must be in the log:\n%s", reason, log)
	}
}

// inRoot runs a command at the root of the repository and returns its output. The command must succeed.
func inRoot(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// TestPackage_Files: every file that .goreleaser.yaml names is there.
func TestPackage_Files(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "..", ".goreleaser.yaml")))(t)
	named := regexp.MustCompile(`(?m)(?:src|postinstall|preremove|postremove): ([^,}\s]+)`).FindAllStringSubmatch(string(text), -1)
	if len(named) < 20 {
		t.Errorf("%d files are named", len(named))
	}
	for _, m := range named {
		if strings.HasPrefix(m[1], "build/") {
			continue // scripts/package.sh docs makes it
		}
		if found, err := filepath.Glob(filepath.Join("..", "..", m[1])); err != nil || len(found) == 0 {
			t.Errorf("%s is named and missing: %v", m[1], err)
		}
	}
}

// TestPackage_Deb builds the Debian package in two versions, looks at it, and has systemd run it on a machine: install, start, upgrade,
// roll back, remove, and purge. The first version has no embedded chain, and the second one has it.
func TestPackage_Deb(t *testing.T) {
	if !needs(t, "dpkg-deb") {
		return
	}
	debs, stamp := map[string]string{}, commit(t)
	formOf := map[string]form{"1.1.0": forms[0], "1.1.1": forms[1]}
	for version, f := range formOf {
		debs[version] = f.deb(t, version)
	}
	looks(t, debs["1.1.0"])

	m := startMachine(t)
	for version, file := range debs {
		m.put(file, "/root/"+version+".deb")
	}
	m.run("dpkg", "-i", "/root/1.1.0.deb")
	if out := m.run("stat", "-c", "%a %U", "/etc/toll", "/etc/toll/toll.env"); out != "700 root\n600 root\n" {
		t.Errorf("settings: %s", out)
	}
	if out, err := m.command("systemctl", "start", "toll@8402").CombinedOutput(); err == nil {
		t.Errorf("starts without a master key: %s", out)
	}
	m.run("systemctl", "stop", "toll@8402")
	m.shell("umask 077; openssl rand -hex 32 >/etc/toll/master.key")
	m.run("systemctl", "enable", "--now", "toll@8402")
	serves := func(version string) {
		t.Helper()
		eventually(t, "release "+version+" serves", func() bool {
			out, err := m.command("toll", "doctor", "--url", "http://127.0.0.1:8402").CombinedOutput()
			return err == nil && strings.Contains(string(out), "release "+version+"+"+stamp+",")
		})
	}
	serves("1.1.0")
	log := m.run("journalctl", "--no-pager", "-u", "toll@8402")
	if !strings.Contains(log, `"version":"1.1.0+`+stamp+`"`) {
		t.Errorf("the log does not say version and commit: %s", log)
	}
	warned(t, log, forms[0].reason())
	user := strings.TrimSpace(m.shell("ps -o user= -p $(systemctl show -P MainPID toll@8402)"))
	if user != "toll" {
		t.Errorf("the service runs as %s", user)
	}
	if mode := m.run("stat", "-Lc", "%a", "/var/lib/toll"); mode != "700\n" {
		t.Errorf("mode of the data: %s", mode)
	}
	exposure := m.run("systemd-analyze", "security", "--no-pager", "toll@8402")
	if found := regexp.MustCompile(`exposure level for \S+: (\d)\.\d`).FindStringSubmatch(exposure); found == nil || found[1] > "1" {
		t.Errorf("systemd finds the unit open: %s", exposure)
	}
	// Root makes the first key beside the service, which keeps its files.
	var first struct{ Key string }
	made := m.run("toll", "keys", "create", "--local", "--data", "/var/lib/toll/toll-data", "--master-key-file", "/etc/toll/master.key",
		"--account", "bob", "-o", "json")
	if err := json.Unmarshal([]byte(made), &first); err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	plans := func(act string) string {
		return m.shell("TOLL_URL=http://127.0.0.1:8402 TOLL_API_KEY=" + first.Key + " toll plans " + act)
	}
	plans(`create --plan-metadata '{"name":"Basic"}' --price-config '{"priceType":"FREE"}' ` +
		`--credits-config '{"amount":100,"minAmount":1,"maxAmount":5,"isRedemptionAmountFixed":false}'`)

	// An upgrade keeps settings and data, and restarts nothing by itself.
	m.shell("echo TOLL_RATE_LIMIT_KEY=7 >>/etc/toll/toll.env")
	for _, step := range []struct{ before, next string }{{"1.1.0", "1.1.1"}, {"1.1.1", "1.1.0"}} {
		out := m.run("dpkg", "-i", "/root/"+step.next+".deb")
		if !strings.Contains(out, "the release before still runs as toll@8402.service") {
			t.Errorf("the upgrade says nothing of the running process: %s", out)
		}
		serves(step.before)
		began := time.Now()
		m.run("systemctl", "restart", "toll@8402")
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a restart took %v", took)
		}
		serves(step.next)
		formOf[step.next].check(t, m.run("toll", "version", "-o", "json"))
	}
	if out := m.run("tail", "-n", "1", "/etc/toll/toll.env"); out != "TOLL_RATE_LIMIT_KEY=7\n" {
		t.Errorf("settings after the upgrade: %s", out)
	}
	if out := plans("list"); !strings.Contains(out, "Basic") {
		t.Errorf("plans after the upgrade: %s", out)
	}

	m.run("dpkg", "-r", "toll")
	if state := m.try("systemctl", "is-active", "toll@8402"); state == "active\n" {
		t.Error("it runs after it was removed")
	}
	m.shell("! test -e /usr/bin/toll; test -e /etc/toll/toll.env")
	m.run("dpkg", "-P", "toll")
	m.shell("! test -e /etc/toll/toll.env; test -e /etc/toll/master.key; test -s /var/lib/private/toll/toll-data/toll.db")
}

// looks checks the files of a package.
func looks(t *testing.T, deb string) {
	t.Helper()
	if name := filepath.Base(deb); name != "toll_1.1.0_"+runtime.GOARCH+".deb" {
		t.Errorf("the package is %s", name)
	}
	contents := inRoot(t, nil, "dpkg-deb", "-c", filepath.Join(strings.TrimPrefix(deb, filepath.Join("..", "..")+"/")))
	for _, want := range []string{
		`-rwxr-xr-x root/root .* \./usr/bin/toll`, `-rw-r--r-- root/root .* \./usr/lib/systemd/system/toll@\.service`,
		`drwx------ root/root .* \./etc/toll/`, `-rw------- root/root .* \./etc/toll/toll\.env`,
		`-rw-r--r-- root/root .* \./usr/share/man/man1/toll-keys-rotate-master\.1\.gz`, `\./usr/share/bash-completion/completions/toll`,
		`\./usr/share/zsh/vendor-completions/_toll`, `\./usr/share/fish/vendor_completions\.d/toll\.fish`,
		`\./usr/share/doc/toll/copyright`, `\./usr/share/doc/toll/NOTICE`, `\./usr/share/doc/toll/licenses/OFL-1\.1\.txt`,
		`\./usr/share/doc/toll/licenses/THIRD-PARTY\.txt`,
		`\./usr/share/doc/toll/examples/nginx\.conf`,
	} {
		if !regexp.MustCompile(`(?m)^.*` + want + `$`).MatchString(contents) {
			t.Errorf("the package has no %s:\n%s", want, contents)
		}
	}
	dir := t.TempDir()
	succeeds(t, dir, "dpkg-deb", "-e", deb, dir)
	if conffiles, err := os.ReadFile(filepath.Join(dir, "conffiles")); err != nil || string(conffiles) != "/etc/toll/toll.env\n" {
		t.Errorf("settings of the package: %q %v", conffiles, err)
	}
	if _, err := exec.LookPath("lintian"); err == nil {
		succeeds(t, dir, "lintian", "--allow-root", "--fail-on", "error,warning", deb)
	}
}

// TestPackage_Image builds the image twice with each form of the program, reads it as the specification of OCI says, and runs it as its
// user in its own root.
func TestPackage_Image(t *testing.T) {
	if !needs(t, "chroot") {
		return
	}
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			env := f.packaged(t, "1.1.0")
			first := inRoot(t, env, "sh", "scripts/package.sh", "image", "1.1.0")
			if again := inRoot(t, env, "sh", "scripts/package.sh", "image", "1.1.0"); again != first {
				t.Errorf("the same program makes %s and %s", first, again)
			}
			runsImage(t, f, "1.1.0")
		})
	}
}

// runsImage checks the image of a version in build/image, and runs it.
func runsImage(t *testing.T, f form, version string) {
	t.Helper()
	stamp := commit(t)
	image := layoutIn(filepath.Join("..", "..", "build", "image"))
	type object struct{ Digest string }
	var index struct{ Manifests []object }
	if image.read(t, "index.json", &index); len(index.Manifests) != 1 {
		t.Fatalf("the image is for %d architectures", len(index.Manifests))
	}
	var manifest struct {
		Config object
		Layers []object
	}
	image.read(t, blob(index.Manifests[0].Digest), &manifest)
	var config struct {
		OS, Architecture string
		Config           struct {
			User, WorkingDir, StopSignal string
			Entrypoint, Cmd, Env         []string
			Labels                       map[string]string
		}
	}
	image.read(t, blob(manifest.Config.Digest), &config)
	c := config.Config
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || c.User != "65532:65532" || c.WorkingDir != "/data" ||
		!slices.Equal(c.Entrypoint, []string{"/usr/bin/toll"}) || !slices.Equal(c.Cmd, []string{"serve"}) ||
		c.Labels["org.opencontainers.image.version"] != version || !strings.HasPrefix(c.Labels["org.opencontainers.image.revision"], stamp) {
		t.Errorf("%+v", config)
	}
	root := t.TempDir()
	must.Do(t, os.Chmod(root, 0o755))
	for _, l := range manifest.Layers {
		image.unpack(t, l.Digest, root)
	}
	for _, name := range []string{
		"etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Madrid", "etc/passwd", "usr/share/doc/toll/NOTICE",
		"usr/share/doc/toll/licenses/THIRD-PARTY.txt",
	} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() < 50 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Its own root has no device, no /proc and no library.
	args := append([]string{"chroot", "--userspec=" + c.User, root}, c.Entrypoint...)
	f.check(t, inRoot(t, nil, args[0], append(args[1:], "version", "-o", "json")...))
	cmd := exec.Command(args[0], append(args[1:], "serve", "--drain", "0s", "--data", "/data/toll")...)
	address := servertest.FreeAddress(t)
	cmd.Env = append(c.Env, "TOLL_LISTEN="+address)
	startsReady(t, cmd, address, f.reason())
}

// layoutIn is a directory as the specification of OCI lays an image out.
type layoutIn string

// blob returns where the object of a digest is.
func blob(digest string) string {
	return filepath.Join("blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// text returns a file of the layout. An object must have the digest that is its name.
func (l layoutIn) text(t *testing.T, name string) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(string(l), name)))(t)
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); name != "index.json" && got != filepath.Base(name) {
		t.Errorf("the object %s has the digest %s", name, got)
	}
	return text
}

// read reads a document.
func (l layoutIn) read(t *testing.T, name string, into any) {
	t.Helper()
	must.Do(t, json.Unmarshal(l.text(t, name), into))
}

// unpack writes the files of a layer below a directory, with their owners.
func (l layoutIn) unpack(t *testing.T, digest, root string) {
	t.Helper()
	text := l.text(t, blob(digest))
	z := must.Get(gzip.NewReader(bytes.NewReader(text)))(t)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.Do(t, err)
		path := filepath.Join(root, filepath.Clean("/"+h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
		default:
			t.Errorf("%s is of the kind %q", h.Name, h.Typeflag)
		}
		must.Do(t, errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode())))
	}
}

// TestPackage_Release has goreleaser read its configuration and make a release of this machine's kind, which it does not publish. The
// archive has the embedded chain, and the packages do not.
func TestPackage_Release(t *testing.T) {
	if !needs(t, "dpkg-deb") {
		return
	}
	text := must.Get(os.ReadFile(filepath.Join("..", "..", ".goreleaser.yaml")))(t)
	inRoot(t, nil, "sh", "scripts/package.sh", "goreleaser", "check")
	one := writeFile(t, t.TempDir(), "one.yaml", []byte(replaceAll(t, string(text), "[amd64, arm64]", "["+runtime.GOARCH+"]")))
	inRoot(t, nil, "sh", "scripts/package.sh", "release", "--snapshot", "--config", one)
	made := map[string]string{}
	for kind, want := range map[string]string{
		"checksums": "checksums.txt", "archive": "toll_*_linux_" + runtime.GOARCH + ".tar.gz", "deb": "toll_*_" + runtime.GOARCH + ".deb",
		"materials": "toll_*_" + runtime.GOARCH + ".cdx.json", "materials of packages": "toll_*_" + runtime.GOARCH + "_package.cdx.json",
	} {
		found, err := filepath.Glob(filepath.Join("..", "..", "dist", want))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v %v", want, found, err)
		}
		made[kind] = found[0]
	}
	dir := t.TempDir()
	succeeds(t, dir, "tar", "-xf", made["archive"], "-C", dir, "toll")
	forms[1].check(t, inRoot(t, nil, filepath.Join(dir, "toll"), "version", "-o", "json"))
	succeeds(t, dir, "dpkg-deb", "-x", made["deb"], dir)
	forms[0].check(t, inRoot(t, nil, filepath.Join(dir, "usr", "bin", "toll"), "version", "-o", "json"))
	var metadata struct{ Version string }
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join("..", "..", "dist", "metadata.json")))(t), &metadata))
	if _, err := exec.LookPath("chroot"); err == nil {
		runsImage(t, forms[0], metadata.Version)
	}
}
