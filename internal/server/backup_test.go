package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestBackupUnderLoad takes backups while settlements run. Each is one moment: its books are right, it holds every
// settlement that was answered before the backup began, and none of the settlements was refused for it.
// T167
func TestBackupUnderLoad(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	s, url := start(t, cfg)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 1_000_000)

	ctx, stop := context.WithCancel(t.Context())
	var settled atomic.Int64
	var load sync.WaitGroup
	for n := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := c.settle(context.WithoutCancel(ctx), fmt.Sprintf("load-%d-%d", n, i)); err != nil {
					t.Errorf("settle: %v", err)
					return
				}
				settled.Add(1)
			}
		})
	}
	dir := t.TempDir()
	for i := range 3 {
		before := settled.Load()
		path := filepath.Join(dir, fmt.Sprintf("%d.backup", i))
		info := must.Get(server.Backup(t.Context(), cfg, path))(t)
		after := settled.Load()
		restored := server.Config{Data: filepath.Join(dir, fmt.Sprint(i)), MasterKeyFile: filepath.Join(cfg.Data, "master.key")}
		if got, err := server.Restore(t.Context(), restored, path); err != nil || got.ID != info.ID || got.Bytes != info.Bytes {
			t.Fatalf("restored %+v, %v; the backup is %+v", got, err, info)
		}
		findings, err := auditBooks(t.Context(), restored)
		if err != nil || len(findings) > 0 {
			t.Fatalf("the books of backup %d: %v %v", i, findings, err)
		}
		_, restoredURL := start(t, restored)
		burned := int64(1_000_000 - c.on(restoredURL, builder, subscriber).balance(t).Balance)
		if burned < before || burned > after+4 {
			t.Errorf("backup %d holds %d settlements, of %d before and %d after it", i, burned, before, after)
		}
	}
	stop()
	load.Wait()
	if settled.Load() == 0 {
		t.Error("there was no load")
	}
	left, err := filepath.Glob(filepath.Join(cfg.Data, "backup-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("copies that are not sealed stayed: %v %v", left, err)
	}
}

// TestBackupChanged flips each of some bytes of a backup, in its header, in lengths, in envelopes and at its end: it
// is refused, and nothing is left behind.
// T167
func TestBackupChanged(t *testing.T) {
	cfg := server.Config{Data: t.TempDir()}
	must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "ann", Init: true}))(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	must.Get(server.Backup(t.Context(), cfg, path))(t)
	whole := must.Get(os.ReadFile(path))(t)
	target := server.Config{Data: filepath.Join(dir, "target"), MasterKeyFile: filepath.Join(cfg.Data, "master.key")}
	var places []int
	for at := 0; at < 400; at += 7 {
		places = append(places, at)
	}
	for at := len(whole) - 1; at > 400; at -= len(whole) / 23 {
		places = append(places, at)
	}
	for _, at := range places {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x20
		must.Do(t, os.WriteFile(filepath.Join(dir, "bad"), bad, 0o600))
		if _, err := server.Restore(t.Context(), target, filepath.Join(dir, "bad")); err == nil {
			t.Fatalf("a backup with another byte %d of %d was restored", at, len(whole))
		}
	}
	left, err := os.ReadDir(target.Data)
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v was left behind", left, err)
	}
	target.Environment = toll.Live
	if _, err := server.Restore(t.Context(), target, path); err == nil {
		t.Error("a backup of sandbox was restored as live")
	}
	target.Environment = toll.Sandbox
	if _, err := server.Restore(t.Context(), target, path); err != nil {
		t.Errorf("the whole backup: %v", err)
	}
}

// TestTemporaryFolder: plain copies lie in the folder that is named for them and nowhere else. What a killed process left there
// goes at the next start.
// T167
func TestTemporaryFolder(t *testing.T) {
	cfg := server.Config{Data: t.TempDir(), TemporaryDir: filepath.Join(t.TempDir(), "plain")}
	must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "ann", Init: true}))(t)
	path := filepath.Join(t.TempDir(), "toll.backup")
	if _, err := server.Backup(t.Context(), cfg, path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), cfg.TemporaryDir) {
		t.Errorf("a backup without that folder: %v", err)
	}
	must.Do(t, os.Mkdir(cfg.TemporaryDir, 0o700))
	if _, err := server.Backup(t.Context(), cfg, path); err != nil {
		t.Error(err)
	}
	left := filepath.Join(cfg.TemporaryDir, "backup-"+strings.Repeat("0a", 16)+".db")
	must.Do(t, os.WriteFile(left, []byte("plain"), 0o600))
	start(t, cfg)
	if files, err := os.ReadDir(cfg.TemporaryDir); err != nil || len(files) > 0 {
		t.Errorf("there is %v, %v", files, err)
	}
}

// TestAudit_Finds changes a balance behind the back of the service, which the audit of the command line must see.
func TestAudit_Finds(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	s, url := start(t, cfg)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 10)
	must.Get(c.settle(t.Context(), "one"))(t)
	if findings, err := auditBooks(t.Context(), cfg); err != nil || len(findings) > 0 {
		t.Fatalf("right books: %v %v", findings, err)
	}
	must.Do(t, server.StoreOf(s).Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE accounts SET balance = balance + 1, minted = minted + 1")
		return err
	}))
	findings, err := auditBooks(t.Context(), cfg)
	if err != nil || len(findings) == 0 || findings[0].Account == "" {
		t.Fatalf("changed books: %v %v", findings, err)
	}
}

// auditBooks returns the findings of an audit of all entries.
func auditBooks(ctx context.Context, cfg server.Config) ([]admin.Finding, error) {
	a, err := admin.AuditFrom(ctx, cfg, false)
	return a.Findings, err
}
