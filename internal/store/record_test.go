package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

type everything struct {
	ID      string `db:"id,key"`
	Note    string
	Owner   toll.Address   `db:"owner,empty,set"`
	Price   toll.Units     `db:"price,set"`
	Rights  toll.Rights    `db:"rights,set"`
	Words   []string       `db:"words,set"`
	Parent  toll.Hash      `db:"parent,null,set"`
	Grant   toll.Hash      `db:"grant_id,empty"`
	Key     *toll.Hash     `db:"key_id,hex,null"`
	Limit   *toll.Credits  `db:"credit_limit"`
	Keys    []toll.Hash    `db:"keys,json"`
	Event   string         `db:"event,uuid"`
	Life    time.Duration  `db:"life"`
	At      time.Time      `db:"at"`
	Flag    bool           `db:"flag"`
	Data    []byte         `db:"data"`
	Address []toll.Address `db:"addresses,json"`
}

// TestRecord takes each kind of field into a table and back, as its zero value and as another one.
func TestRecord(t *testing.T) {
	ctx := t.Context()
	st := must.Get(Open(ctx, Config{Data: t.TempDir()}))(t)
	defer st.Close()
	r := newRecord[*everything]("everything")
	hash, credits := toll.NewHash(), toll.Credits(7)
	nothing := must.Get(toll.ParseUnits("0"))(t) // as it is read
	full := everything{
		ID: "full", Owner: toll.MustAddress("0x00000000000000000000000000000000000000ab"), Price: toll.UnitsOf(5),
		Rights: toll.AllRights()[:2], Words: []string{"a", "b"}, Parent: hash, Grant: hash, Key: &hash, Limit: &credits, Keys: []toll.Hash{hash},
		Event: NewEventID(time.Now()), Life: time.Minute, At: time.UnixMicro(5).UTC(), Flag: true, Data: []byte{1},
		Address: []toll.Address{{1}},
	}
	bare := everything{ID: "bare", Event: NewEventID(time.Now()), Price: nothing}
	must.Do(t, st.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE everything ("+r.columns+")"); err != nil {
			return err
		}
		for _, v := range []*everything{&full, &bare} {
			if err := r.insert(ctx, tx, v); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, want := range []*everything{&full, &bare} {
		got, err := r.one(ctx, st, "WHERE id = $1", want.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	for name, want := range map[string]int64{
		"owner = '' AND parent IS NULL AND grant_id = x'' AND key_id IS NULL AND credit_limit IS NULL AND keys = ''": 1,
		"length(event) = 16": 2, "life = 60 AND at = 5 AND words = 'a b'": 1,
	} {
		if n, err := value[int64](ctx, st, "SELECT COUNT(*) FROM everything WHERE "+name); n != want || err != nil {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
	}
	if _, err := r.one(ctx, st, "WHERE id = $1", "none"); err != ErrNotFound {
		t.Error(err)
	}

	// update writes what is marked, and nothing else.
	moved := bare
	moved.Words, moved.Flag = []string{"c"}, true
	gone := moved
	gone.ID = "gone"
	must.Do(t, st.Tx(ctx, func(tx *Tx) error { return r.update(ctx, tx, &moved) }))
	moved.Flag = false
	if got, err := r.one(ctx, st, "WHERE id = $1", "bare"); err != nil || !reflect.DeepEqual(got, &moved) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := st.Tx(ctx, func(tx *Tx) error { return r.update(ctx, tx, &gone) }); err != ErrNotFound {
		t.Error(err)
	}
}
