package ledger

import "github.com/tollhq/toll/internal/store"

// writes are the statements that write a row of each kind, and many rows.
var writes = []struct{ one, many string }{
	writesAccount:    {sqlAccountSave, sqlAccountsSave},
	writesLot:        {sqlLotSave, sqlLotsSave},
	writesRequest:    {sqlRequestAdd, sqlRequestsAdd},
	writesEnd:        {sqlRequestEnd, sqlRequestsEnd},
	writesRenewed:    {sqlRequestRenew, sqlRequestsRenew},
	writesSettled:    {sqlRequestSettled, sqlRequestsSettled},
	writesKey:        {sqlKeyAdd, sqlKeysAdd},
	writesPermission: {sqlPermissionSave, sqlPermissionsSave},
	writesLotLeft:    {sqlLotLeft, sqlLotsLeft},
	writesTerms:      {sqlPermissionTerms, sqlPermissionsTerms},
	writesEntry:      {store.SQLJournalAdd, store.SQLJournalAddMany}, // last: see [store.JournalLock]
}

const (
	writesAccount = iota
	writesLot
	writesRequest
	writesEnd
	writesRenewed
	writesSettled
	writesKey
	writesPermission
	writesLotLeft
	writesTerms
	writesEntry
)

// rows calls add for each row that the operations on one account changed, with its place in writes.
func (s *state) rows(id []byte, add func(kind int, row []any)) {
	if !s.changed() {
		return
	}
	cold := s.fold()
	s.account.version++
	ends := func(r *requestRow) {
		add(writesEnd, []any{
			id, r.ID, int64(r.State), micros(r.EndedAt, 0), string(s.account.Plan), s.account.Subscriber.Lower(),
		})
	}
	add(writesAccount, s.account.row())
	for _, l := range cold.lots {
		add(writesLot, l.row(id))
	}
	for _, l := range cold.left {
		add(writesLotLeft, []any{id, l.id, int64(l.remaining)})
	}
	for _, r := range s.requests {
		switch {
		case !r.changed:
		case r.stored && r.State == StateSettled:
			add(writesSettled, []any{id, r.ID})
		case r.stored && r.State == StateHeld:
			add(writesRenewed, []any{id, r.ID, micros(r.HoldEndsAt, 0)})
		case r.stored:
			ends(r)
		case r.State != StateSettled:
			add(writesRequest, r.row())
			if r.State != StateHeld {
				ends(r)
			}
		}
	}
	for _, k := range s.newKeys {
		add(writesKey, []any{id, k.key, k.requestID})
	}
	for _, p := range cold.permissions {
		add(writesPermission, p.row(id))
	}
	for _, p := range cold.terms {
		add(writesTerms, []any{id, p.Hash[:], p.Orders, micros(p.RevokedAt, 0)})
	}
	s.entryRows(func(row []any) { add(writesEntry, row) })
}

// changes returns the statements that write what the operations on one account changed, the rows of the journal last.
func (s *state) changes(id []byte) []store.Stmt {
	stmts := make([]store.Stmt, 0, 8)
	s.rows(id, func(kind int, row []any) { stmts = append(stmts, store.Stmt{SQL: writes[kind].one, Args: row}) })
	return stmts
}
