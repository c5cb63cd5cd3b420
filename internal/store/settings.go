package store

import "context"

// Setting returns a value that all processes share; [ErrNotFound] when it was never put.
var Setting = valueBy[[]byte, string]("SELECT value FROM settings WHERE name = $1")

// LockSetting is [Setting] for who is going to change the value: others wait until the transaction ends.
func LockSetting(ctx context.Context, tx *Tx, name string) ([]byte, error) {
	return value[[]byte](ctx, tx, "SELECT value FROM settings WHERE name = $1"+tx.ForUpdate(), name)
}

// PutSettingIfAbsent stores a value unless there is one, and returns the one that is there afterwards. Two transactions
// that put the same name run one after the other from here on.
func PutSettingIfAbsent(ctx context.Context, tx *Tx, name string, value []byte) ([]byte, error) {
	_, err := tx.Exec(ctx, "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", name, blob(value))
	if err != nil {
		return nil, err
	}
	return Setting(ctx, tx, name)
}

// PutSetting stores a value in place of the one that is there.
var PutSetting = runs2[string, []byte](done, `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`)

// blob returns b so that a nil slice is stored as zero bytes, not as NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// optional returns s so that empty text is stored as NULL.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
