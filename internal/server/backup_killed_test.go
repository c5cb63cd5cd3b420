package server_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// killedCommand starts a command and kills it as soon as a file of the pattern is there with
// something in it. It returns the file.
func killedCommand(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	var found string
	thrice(t, func() error {
		cmd := exec.Command(servertest.Program(t), args...)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		must.Do(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for found == "" {
			select {
			case err := <-ended:
				t.Fatalf("it ended before it could be killed: %v\n%s", err, out.String())
			default:
			}
			matches := must.Get(filepath.Glob(pattern))(t)
			for _, m := range matches {
				if info, err := os.Stat(m); err == nil && info.Size() > 0 {
					found = m
				}
			}
		}
		must.Do(t, cmd.Process.Kill())
		<-ended
		_, err := os.Stat(found)
		return err // it may have been removed in time
	})
	return found
}

// bigDatabase makes a database that takes a while to copy.
func bigDatabase(t *testing.T) servertest.Options {
	t.Helper()
	o := servertest.Options{Data: storetest.Dir(t)}
	must.Do(t, os.Chmod(o.Data, 0o700))
	servertest.Key(t, o, "ann")
	st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data}))(t)
	defer st.Close()
	for n := range 4 {
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			return store.PutSetting(t.Context(), tx, "big/"+string(rune('a'+n)), make([]byte, 24<<20))
		}))
	}
	return o
}

// A backup that is killed leaves a plain copy of the database. Doctor warns of it; the next start
// of the service removes it, and so does the next backup. What a backup that runs has made stays.
// T167
func TestKilledBackupLeavesNoPlainCopy(t *testing.T) {
	t.Parallel()
	o := bigDatabase(t)
	program := servertest.Program(t)
	copies := filepath.Join(o.Data, "backup-*.db")
	file := func() string { return filepath.Join(t.TempDir(), "toll.backup") }
	left := func() []string {
		t.Helper()
		return must.Get(filepath.Glob(copies))(t)
	}
	gone := func(after string) {
		t.Helper()
		if names := left(); len(names) > 0 {
			t.Errorf("after %s there is %v", after, names)
		}
	}

	plain := killedCommand(t, copies, "backup", file(), "--data", o.Data)
	out, _ := servertest.Run(t, program, o, "doctor")
	if !strings.Contains(out, filepath.Base(plain)+" is an unencrypted copy of the database") {
		t.Errorf("doctor does not warn of %s:\n%s", plain, out)
	}
	p := servertest.Start(t, o)
	gone("a start of the service")
	if !strings.Contains(p.Log.String(), filepath.Base(plain)) {
		t.Errorf("the log does not name what was removed:\n%s", p.Log)
	}

	killedCommand(t, copies, "backup", file(), "--data", o.Data)
	works(t, program, o, "backup", file())
	gone("a backup")
	p.Kill()

	// A start beside a backup that runs.
	cmd := exec.Command(program, "backup", file(), "--data", o.Data)
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	must.Do(t, cmd.Start())
	eventually(t, "the backup makes its copy", func() bool { return len(left()) > 0 })
	beside := servertest.Start(t, o)
	if err := cmd.Wait(); err != nil {
		t.Errorf("a backup while the service starts: %v\n%s", err, printed.String())
	}
	gone("both")
	beside.Kill()
}

// A restore that is killed leaves a plain database as well: the next restore removes it.
// T167
func TestKilledRestoreLeavesNoPlainCopy(t *testing.T) {
	t.Parallel()
	o := bigDatabase(t)
	file := filepath.Join(t.TempDir(), "toll.backup")
	works(t, servertest.Program(t), o, "backup", file)
	to := servertest.Options{Data: t.TempDir(), MasterKeyFile: filepath.Join(o.Data, "master.key")}
	plain := killedCommand(t, filepath.Join(to.Data, "restore-*.db"),
		"restore", file, "--data", to.Data, "--master-key-file", to.MasterKeyFile)
	works(t, servertest.Program(t), to, "restore", file)
	if _, err := os.Stat(plain); err == nil {
		t.Errorf("%s is still there", plain)
	}
	if names, err := filepath.Glob(filepath.Join(to.Data, "*restore*")); err != nil || len(names) > 0 {
		t.Errorf("%v is still there, %v", names, err)
	}
}

// A backup that is killed leaves a part of the sealed file beside the one that it was to make: the
// next one removes it.
// T167
func TestKilledBackupLeavesNoSealedPart(t *testing.T) {
	t.Parallel()
	o := bigDatabase(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "toll.backup")
	other := filepath.Join(dir, ".toll.backup.txt")
	must.Do(t, os.WriteFile(other, []byte("of somebody else"), 0o600))
	var part string
	thrice(t, func() error {
		part = killedCommand(t, filepath.Join(dir, ".toll.backup*[0-9a-f]"), "backup", file, "--data", o.Data)
		if os.Remove(file) == nil {
			return errors.New("the backup was ready before it was killed")
		}
		return nil
	})
	works(t, servertest.Program(t), o, "backup", file)
	if _, err := os.Stat(part); err == nil {
		t.Errorf("%s is still there", part)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
