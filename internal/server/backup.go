package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tempfile"
)

// A backup is: the mark, the length of the header (4 bytes), the header as JSON, and envelopes of the master key, each
// after its length (4 bytes), which together are the database file. The associated data of an envelope are the hash of the
// header, its number and whether it is the last one, so that none can be changed, moved, left out or added.
const (
	backupMark  = "toll backup 1\n"
	backupChunk = 1 << 20
	maxHeader   = 4 << 10
)

// errNotBackup is a file of another kind.
var errNotBackup = errors.New("the file is no backup of this program")

// BackupInfo is what a backup says of itself. Nothing of it is secret.
type BackupInfo struct {
	ID          string           `json:"id"`
	Environment toll.Environment `json:"environment"`
	CreatedAt   toll.Time        `json:"createdAt"`
	Release     string           `json:"release"`
	Schema      int64            `json:"schema"`
	MasterKeyID string           `json:"masterKeyId"` // which master key opens it, not the key
	Bytes       int64            `json:"bytes"`       // of the database
}

// Backup writes the embedded database, as it is in one moment, to a new file that only the master key opens. It works
// beside a running service. The master key is not in it: who restores needs both. The file is read back before it gets
// its name.
func Backup(ctx context.Context, cfg Config, path string) (info BackupInfo, err error) {
	if cfg.Database != "" {
		return info, store.ErrNoSnapshot
	}
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.check(), cfg.existing()); err != nil {
		return info, err
	}
	st, err := store.Open(ctx, cfg.anySchema())
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	// An older schema is copied as it is. Nobody could restore a newer one with this release.
	schema, err := st.Schema(ctx)
	if err != nil {
		return info, err
	}
	if err := schema.Usable(); err != nil && !errors.Is(err, store.ErrOlderSchema) {
		return info, err
	}
	environment, err := setting(ctx, st, "environment")
	if err != nil {
		return info, err
	}
	ring, err := cfg.ringOf(toll.Environment(environment), false)
	if err != nil {
		return info, err
	}
	stored, err := auth.ReadStored(ctx, st, ring)
	if err != nil {
		return info, err
	}
	moved, err := newClock(ctx, cfg.Clock, st, stored.Environment)
	if err != nil {
		return info, err
	}
	info = BackupInfo{
		Environment: stored.Environment,
		CreatedAt:   toll.At(moved.now()),
		Release:     cfg.Release,
		MasterKeyID: ring.KeyID(),
	}
	return backup(ctx, cfg, st, ring, info, path)
}

func backup(
	ctx context.Context, cfg Config, st *store.Store, ring *seal.Ring, info BackupInfo, path string,
) (_ BackupInfo, err error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails since Go 1.24
	info.ID = hex.EncodeToString(id)
	// The copy that is not sealed lies where the database lies, under the same protection, and not for long.
	plain, err := plainBackup.Create(cfg.Data)
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, plain.Remove()) }()
	if err := st.Snapshot(ctx, plain.Name()); err != nil {
		return info, err
	}
	held, err := store.CheckSnapshot(ctx, plain.Name())
	if err != nil {
		return info, err
	}
	info.Schema = held.Schema.Version
	stat, err := os.Stat(plain.Name())
	if err != nil {
		return info, err
	}
	info.Bytes = stat.Size()

	dir, name := filepath.Split(path)
	out, err := tempfile.Kind{Prefix: "." + name + "."}.Create(cmp.Or(dir, "."))
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, out.Remove()) }()
	err = sealFile(ctx, ring, info, plain.Name(), out)
	if err := errors.Join(err, out.Sync()); err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	if _, err := openFile(ctx, ring, out.Name(), io.Discard); err != nil {
		return info, fmt.Errorf("backup: the file cannot be read back: %w", err)
	}
	return info, publish(out, path)
}

// Temporary files in a data directory. A killed process leaves them; the next start of the service
// removes them, and so does the next process that makes one.
var (
	plainBackup  = tempfile.Kind{Prefix: "backup-", Suffix: ".db"}
	plainRestore = tempfile.Kind{Prefix: "restore-", Suffix: ".db"}
)

// plainCopies are the kinds of files that hold a whole database.
var plainCopies = []tempfile.Kind{plainBackup, plainRestore}

// removeLeft removes what killed processes left in the data directory.
func (c Config) removeLeft() {
	for _, kind := range append([]tempfile.Kind{seal.NewKey}, plainCopies...) {
		names, err := kind.Clean(c.Data)
		for _, name := range names {
			c.Log.Info("removed what a killed process left", "path", filepath.Join(c.Data, name))
		}
		if err != nil {
			c.Log.Warn("what a killed process left was not removed", "error", err.Error())
		}
	}
}

// publish gives a file its name, unless that is taken.
func publish(f *tempfile.File, to string) error {
	err := f.Publish(to, false)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already", to)
	}
	return err
}

// chunkData is the associated data of an envelope.
func chunkData(header [sha256.Size]byte, n uint64, last bool) []byte {
	aad := append([]byte("backup "), header[:]...)
	aad = binary.BigEndian.AppendUint64(aad, n)
	if last {
		return append(aad, 1)
	}
	return append(aad, 0)
}

func sealFile(ctx context.Context, ring *seal.Ring, info BackupInfo, plain string, out io.Writer) (err error) {
	header, err := json.Marshal(info)
	if err != nil {
		return err
	}
	in, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := writeAll(out, []byte(backupMark), binary.BigEndian.AppendUint32(nil, uint32(len(header))), header); err != nil {
		return err
	}
	hash := sha256.Sum256(header)
	chunk := make([]byte, backupChunk)
	for n := uint64(0); ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := io.ReadFull(in, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		envelope, err := ring.Seal(chunk[:got], chunkData(hash, n, last))
		if err != nil {
			return err
		}
		if err := writeAll(out, binary.BigEndian.AppendUint32(nil, uint32(len(envelope))), envelope); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

func writeAll(out io.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := out.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// openFile writes the database that a backup holds. What was written counts only when there is no error.
func openFile(ctx context.Context, ring *seal.Ring, path string, out io.Writer) (info BackupInfo, err error) {
	in, err := os.Open(path)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	mark := make([]byte, len(backupMark))
	if _, err := io.ReadFull(in, mark); err != nil || !bytes.Equal(mark, []byte(backupMark)) {
		return info, errNotBackup
	}
	header, err := sized(in, maxHeader)
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(header, &info); err != nil {
		return info, errNotBackup
	}
	hash := sha256.Sum256(header)
	var written int64
	for n := uint64(0); ; n++ {
		if err := ctx.Err(); err != nil {
			return info, err
		}
		envelope, err := sized(in, 2*backupChunk)
		if err != nil {
			return info, err
		}
		last := false
		plain, err := ring.Open(envelope, chunkData(hash, n, false))
		if errors.Is(err, seal.ErrDamaged) {
			last = true
			plain, err = ring.Open(envelope, chunkData(hash, n, true))
		}
		switch {
		case errors.Is(err, seal.ErrOtherKey):
			return info, fmt.Errorf("the backup is sealed with another master key: name the one with id %s by TOLL_MASTER_KEY_FILE (--master-key-file)", info.MasterKeyID)
		case err != nil:
			return info, errDamagedBackup
		}
		if _, err := out.Write(plain); err != nil {
			return info, err
		}
		written += int64(len(plain))
		if !last {
			continue
		}
		if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || written != info.Bytes {
			return info, errDamagedBackup
		}
		return info, nil
	}
}

var errDamagedBackup = errors.New("the backup is damaged or cut off")

// sized reads a part that follows its length.
func sized(in io.Reader, most uint32) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, errDamagedBackup
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > most {
		return nil, errDamagedBackup
	}
	part := make([]byte, n)
	if _, err := io.ReadFull(in, part); err != nil {
		return nil, errDamagedBackup
	}
	return part, nil
}

// Restore makes the embedded database of a backup in a directory that holds none. It needs the master key of the backup,
// and the same environment: a backup of live is restored only with Environment live. The books are not what they were
// after the moment of the backup; what happened later is not in them.
func Restore(ctx context.Context, cfg Config, path string) (info BackupInfo, err error) {
	cfg = cfg.withDefaults()
	if cfg.Database != "" {
		return info, store.ErrNoSnapshot
	}
	if cfg.Environment == "" {
		cfg.Environment = toll.Sandbox
	}
	if err := cfg.check(); err != nil {
		return info, err
	}
	target := filepath.Join(cfg.Data, databaseName)
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		return info, fmt.Errorf("%s is there already: restore into a directory without a database", target)
	}
	ring, err := cfg.openRing(false)
	if errors.Is(err, os.ErrNotExist) {
		return info, fmt.Errorf("%w: a backup does not hold the master key; name its file with TOLL_MASTER_KEY_FILE (--master-key-file)", err)
	}
	if err != nil {
		return info, err
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return info, fmt.Errorf("data directory: %w", err)
	}
	out, err := plainRestore.Create(cfg.Data)
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, out.Remove()) }()
	info, err = openFile(ctx, ring, path, out)
	if err := errors.Join(err, out.Sync()); err != nil {
		return info, err
	}
	if info.Environment != cfg.Environment {
		return info, fmt.Errorf("the backup is of %s, not of %s: say so with --environment %[1]s", info.Environment, cfg.Environment)
	}
	held, err := store.CheckSnapshot(ctx, out.Name())
	if err != nil {
		return info, err
	}
	if !strings.EqualFold(held.Environment, string(info.Environment)) {
		return info, errDamagedBackup
	}
	if err := held.Schema.Usable(); errors.Is(err, store.ErrNewerSchema) {
		return info, fmt.Errorf("the backup was made by release %s: %w", info.Release, err)
	}
	return info, publish(out, target)
}

// Age returns how long ago the backup was made.
func (i BackupInfo) Age(now time.Time) time.Duration {
	return now.Sub(i.CreatedAt.Time).Round(time.Second)
}
