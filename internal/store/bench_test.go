package store_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A batch of the ledger on SQLite: for each of n operations two reads by key, two inserts and one update, in one
// durable transaction. ns/op is one operation.
func BenchmarkSQLiteBatch(b *testing.B) {
	for _, size := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			st, _ := storetest.Open(b, store.SQLite)
			ctx := b.Context()
			const accounts = 256
			id := func(n int) []byte {
				k := make([]byte, 16)
				binary.BigEndian.PutUint64(k, uint64(n))
				return k
			}
			must.Do(b, st.Tx(ctx, func(tx *store.Tx) error {
				for i := range accounts {
					if _, _, err := store.CountOrder(ctx, tx, "1", 0); err != nil {
						return err
					}
					if err := store.InsertOrder(ctx, tx, &store.Order{ID: "0", Account: [16]byte(id(i))}); err != nil {
						return err
					}
				}
				return nil
			}))
			answer := make([]byte, 300)
			n := 0
			b.ResetTimer()
			for n < b.N {
				err := st.Tx(ctx, func(tx *store.Tx) error {
					for range min(size, b.N-n) {
						n++
						account := id(n % accounts)
						var credits, orders int64
						if err := tx.QueryRow(ctx, "SELECT credits FROM orders WHERE account_id = $1 AND order_id = $2", account, "0").Scan(&credits); err != nil {
							return err
						}
						if err := tx.QueryRow(ctx, "SELECT orders FROM plan_orders WHERE plan_id = $1", "1").Scan(&orders); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, "UPDATE orders SET credits = $3, updated_at = $4 WHERE account_id = $1 AND order_id = $2",
							account, "0", credits+1, int64(n)); err != nil {
							return err
						}
						if err := store.InsertOrder(ctx, tx, &store.Order{ID: fmt.Sprintf("%08d", n), Account: [16]byte(account)}); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, "INSERT INTO settings (name, value) VALUES ($1, $2)", fmt.Sprintf("%08d", n), answer); err != nil {
							return err
						}
					}
					return nil
				})
				must.Do(b, err)
			}
		})
	}
}
