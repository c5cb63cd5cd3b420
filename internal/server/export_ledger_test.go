package server

import "github.com/tollhq/toll/internal/ledger"

// LedgerOf gives tests the ledger of a running service.
func LedgerOf(s *Server) *ledger.Ledger { return s.ledger }
