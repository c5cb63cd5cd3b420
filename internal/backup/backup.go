// Package backup copies an embedded database to a file that only the master key opens, and back.
package backup

import (
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
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tempfile"
)

// A backup is: the mark, the length of the header (4 bytes), the header as JSON, and envelopes of the master key, each
// after its length (4 bytes), which together are the database file. The associated data of an envelope are the hash of the
// header, its number and whether it is the last one, so that none can be changed, moved, left out or added.
const (
	mark      = "toll backup 1\n"
	chunkSize = 1 << 20
	maxHeader = 4 << 10
)

var errOtherFile = errors.New("the file is not a Toll backup")

// Info is what a backup says of itself. Nothing of it is secret.
type Info struct {
	ID          string           `json:"id"`
	Environment toll.Environment `json:"environment"`
	CreatedAt   toll.Time        `json:"createdAt"`
	Release     string           `json:"release"`
	Schema      int64            `json:"schema"`
	MasterKeyID string           `json:"masterKeyId"` // which master key opens it, not the key
	Bytes       int64            `json:"bytes"`       // of the database
}

// Write copies the database of st, as it is in one moment, to a new file at a place. info has what the caller knows:
// environment, time, release and master key. The copy that is not sealed lies in the directory data, under the protection of
// the database, for the time of the call. The file is read back before it gets its name.
func Write(
	ctx context.Context, st *store.Store, ring *seal.Ring, info Info, data string, to Destination, name string,
) (_ Info, err error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails since Go 1.24
	info.ID = hex.EncodeToString(id)
	plain, err := plainBackup.Create(data)
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

	out, err := to.create(data, name)
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, out.Remove()) }()
	err = sealFile(ctx, ring, info, plain.Name(), out)
	if err := errors.Join(err, out.Sync()); err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	if _, err := Verify(ctx, ring, folder(""), out.Name()); err != nil {
		return info, fmt.Errorf("backup: the new backup cannot be verified: %w", err)
	}
	return info, to.publish(ctx, out, name)
}

// Temporary files in a data directory. A killed process leaves them; the next start of the service
// removes them, and so does the next process that makes one.
var (
	plainBackup  = tempfile.Kind{Prefix: "backup-", Suffix: ".db"}
	plainRestore = tempfile.Kind{Prefix: "restore-", Suffix: ".db"}
	sealedBackup = tempfile.Kind{Prefix: "sealed-", Suffix: ".backup"} // on its way to a bucket
)

// Copies are the kinds of files in a data directory that hold a whole database.
var Copies = []tempfile.Kind{plainBackup, plainRestore, sealedBackup}

// chunkData is the associated data of an envelope.
func chunkData(header [sha256.Size]byte, n uint64, last bool) []byte {
	aad := append([]byte("backup "), header[:]...)
	aad = binary.BigEndian.AppendUint64(aad, n)
	if last {
		return append(aad, 1)
	}
	return append(aad, 0)
}

func sealFile(ctx context.Context, ring *seal.Ring, info Info, plain string, out io.Writer) (err error) {
	header, err := json.Marshal(info)
	if err != nil {
		return err
	}
	in, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := writeAll(out, []byte(mark), binary.BigEndian.AppendUint32(nil, uint32(len(header))), header); err != nil {
		return err
	}
	hash := sha256.Sum256(header)
	chunk := make([]byte, chunkSize)
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
func openFile(ctx context.Context, ring *seal.Ring, from Destination, name string, out io.Writer) (info Info, err error) {
	in, err := from.Open(ctx, name)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	start := make([]byte, len(mark))
	if _, err := io.ReadFull(in, start); err != nil && !errors.Is(cut(err), errDamaged) {
		return info, err
	}
	if string(start) != mark {
		return info, errOtherFile
	}
	header, err := sized(in, maxHeader)
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(header, &info); err != nil {
		return info, errOtherFile
	}
	hash := sha256.Sum256(header)
	var written int64
	for n := uint64(0); ; n++ {
		if err := ctx.Err(); err != nil {
			return info, err
		}
		envelope, err := sized(in, 2*chunkSize)
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
			return info, fmt.Errorf("the backup is sealed with another master key: set TOLL_MASTER_KEY_FILE (--master-key-file) to the file of the key with id %s", info.MasterKeyID)
		case err != nil:
			return info, errDamaged
		}
		if _, err := out.Write(plain); err != nil {
			return info, err
		}
		written += int64(len(plain))
		if !last {
			continue
		}
		if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || written != info.Bytes {
			return info, errDamaged
		}
		return info, nil
	}
}

// Verify reads a whole backup and opens it, without making a database.
func Verify(ctx context.Context, ring *seal.Ring, from Destination, name string) (Info, error) {
	return openFile(ctx, ring, from, name, io.Discard)
}

var errDamaged = errors.New("the backup is damaged or truncated")

// sized reads a part that follows its length.
func sized(in io.Reader, most uint32) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, cut(err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > most {
		return nil, errDamaged
	}
	part := make([]byte, n)
	if _, err := io.ReadFull(in, part); err != nil {
		return nil, cut(err)
	}
	return part, nil
}

// cut is the error of a read that ended too early: the backup is cut off, or its place does not answer. The errors of a
// place may have io.ErrUnexpectedEOF inside.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errDamaged
	}
	return err
}

// Read makes the database target, which must not exist, of a backup, in the directory data, and marks it as restored at
// now. Ring and environment must be those of the backup.
func Read(
	ctx context.Context, ring *seal.Ring, environment toll.Environment, data, target string, from Destination, name string, now time.Time,
) (info Info, err error) {
	out, err := plainRestore.Create(data)
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, out.Remove()) }()
	info, err = openFile(ctx, ring, from, name, out)
	if err := errors.Join(err, out.Sync()); err != nil {
		return info, err
	}
	if info.Environment != environment {
		return info, fmt.Errorf("the backup is from the %s environment, not %s: restore it with --environment %[1]s", info.Environment, environment)
	}
	held, err := store.CheckSnapshot(ctx, out.Name())
	if err != nil {
		return info, err
	}
	if !strings.EqualFold(held.Environment, string(info.Environment)) {
		return info, errDamaged
	}
	if err := held.Schema.Usable(); err != nil && !errors.Is(err, store.ErrOlderSchema) {
		return info, fmt.Errorf("the backup was made by release %s: %w", info.Release, err)
	}
	mark := store.Restoration{BackupID: info.ID, BackupAt: info.CreatedAt.Time, RestoredAt: now.UTC()}
	if err := store.MarkSnapshot(ctx, out.Name(), mark); err != nil {
		return info, err
	}
	dir, file := filepath.Split(target)
	return info, folder(dir).publish(ctx, out, file)
}

// Age returns how long ago the backup was made.
func (i Info) Age(now time.Time) time.Duration {
	return now.Sub(i.CreatedAt.Time).Round(time.Second)
}
