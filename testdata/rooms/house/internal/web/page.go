package web

import (
	_ "github.com/tollhq/toll/internal/ledger"
	_ "github.com/tollhq/toll/internal/store"
)
