package server

import (
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// LedgerOf gives tests the ledger of a running service.
func LedgerOf(s *Server) *ledger.Ledger { return s.ledger }

// StoreOf gives tests the database of a running service.
func StoreOf(s *Server) *store.Store { return s.base.store }

// AuthOf returns the principals of a service.
func AuthOf(s *Server) *auth.Auth { return s.base.auth }
