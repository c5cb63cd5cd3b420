package api

import (
	"database/sql" // want `SQL outside of store and ledger`
	"fmt"
	"log/slog"
	"sync"
	"testing" // want `a helper of tests in a production file`
	"time"

	"example.com/allowed/below"
	"example.com/alloweds" // want `internal/api must not import example.com/alloweds`
	"example.org/bad/util" // want `internal/api must not import util`
	"example.org/bad/x402"
)

const Name = x402.Name

func all(t *testing.T, db *sql.DB) {
	_, _ = db.Query("SELECT name FROM agents")             // want `SQL outside of store and ledger`
	_, _ = db.Exec(`UPDATE agents a SET name = ''`)        // want `SQL outside of store and ledger`
	_, _ = db.Exec("delete from agents" + " WHERE a = $1") // want `SQL outside of store and ledger` // want `SQL outside of store and ledger`
	_ = "Select a plan from the list, or update it; set a limit."
	fmt.Println(time.Now(), below.Word, alloweds.Word, util.Word) // want `this room does not write to the terminal`
	slog.Info("hello")                                            // want `slog.Info is a global: take a *slog.Logger`
	go fmt.Sprint()                                               // want `work in the background is a jobs.Loop: see goroutines`
	_ = time.NewTicker(1)                                         // want `work in the background is a jobs.Loop: see goroutines`
	new(sync.WaitGroup).Go(nil)                                   // want `work in the background is a jobs.Loop: see goroutines`
	time.Sleep(1)
}
