package people

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// walletLife is how long a text that a wallet signs is taken.
	walletLife = 10 * time.Minute
	// ContractLife ends a session that code of an account opened: the code may let somebody else sign tomorrow.
	ContractLife = 24 * time.Hour
)

// What a wallet signs: each text names what it allows.
const (
	textSignIn = "Sign in. For ten minutes, this also confirms changes to your account and approvals of apps."
	textAdd    = "Add this wallet to your account as a sign-in method, and become the owner of its workspace."
	textProve  = "Confirm that it is you. For ten minutes, you can change who can use your account and approve apps."
)

// WalletFor says for what a wallet signs.
type WalletFor struct {
	Next   string    `json:"next"`   // page that comes then
	Link   string    `json:"link"`   // secret of a link that lets a new person in
	User   toll.UUID `json:"user"`   // who is signed in; zero: nobody
	Adds   bool      `json:"adds"`   // the wallet becomes a credential of User
	Proves bool      `json:"proves"` // User proves it once more
}

// walletState is what the page keeps of a text to sign, sealed.
type walletState struct {
	WalletFor
	Address toll.Address `json:"address"`
	Text    string       `json:"text"`
	Ends    time.Time    `json:"ends"`
}

// WalletText is what a wallet signs (EIP-4361), and the state that comes back with the signature.
type WalletText struct {
	Address     toll.Address
	Text, State string
}

var (
	errWallet  = toll.Errorf(toll.CodeNotAuthenticated, "The signature does not match this wallet and text. Start again.")
	errNoChain = toll.Errorf(toll.CodeForbidden, "This wallet is a smart contract, "+
		"and this service is not connected to a chain that can verify its signature. "+
		"Sign in with a wallet that has a private key.").
		WithHint("The operator can connect a chain with --chain-rpc-urls.")
	errOwnKey = toll.Errorf(toll.CodeForbidden, "The service holds the private key of this wallet, so the wallet cannot sign you in.").
			WithHint("Sign in as a member of the workspace.")
	errOwned = toll.Errorf(toll.CodeForbidden, "The workspace of this wallet already has members.").
			WithHint("Sign in as a member, then add the wallet to your account.")
)

type Wallets struct {
	store     *store.Store
	auth      *auth.Auth
	states    *states
	limits    *limits
	publicURL string
	accepts   func(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) // nil: no chain
}

// Begin returns the text for a wallet to sign. Errors are safe to show: [toll.CodeBadAddress], [toll.CodeRateLimited],
// [toll.CodeForbidden] for a workspace whose key the service holds.
func (ws *Wallets) Begin(ctx context.Context, source, address string, f WalletFor) (WalletText, error) {
	if err := ws.limits.attempt(source); err != nil {
		return WalletText{}, err
	}
	at, err := toll.ParseAddress(address)
	if err == nil && at.IsZero() {
		err = toll.NewError(toll.CodeBadAddress)
	}
	if err == nil {
		err = signsIn(ctx, ws.store, at)
	}
	if err != nil {
		return WalletText{}, err
	}
	u, err := url.Parse(ws.publicURL)
	if err != nil {
		return WalletText{}, err
	}
	now := ws.states.clock()
	s := walletState{WalletFor: f, Address: at, Ends: now.Add(walletLife)}
	statement := textSignIn
	switch {
	case f.Adds:
		statement = textAdd
	case f.Proves:
		statement = textProve
	}
	env := ws.auth.Environment()
	info := x402.SignInInfo{
		Domain: u.Host, URI: ws.publicURL, Version: "1", Nonce: rand.Text(), IssuedAt: x402.SignInTime(now),
		ExpirationTime: x402.SignInTime(s.Ends), Statement: statement,
	}
	s.Text = x402.NewSignIn(info, x402.SignInChain{ChainID: env.Network(), Type: x402.TypeEIP191}, at).Text()
	state, err := ws.states.seal(s, "people wallet")
	return WalletText{at, s.Text, state}, err
}

// Read returns what a text was for, and the text, without a signature. The error is safe to show.
func (ws *Wallets) Read(state string) (WalletFor, WalletText, error) {
	s, err := ws.open(state)
	return s.WalletFor, WalletText{s.Address, s.Text, state}, err
}

func (ws *Wallets) open(state string) (s walletState, err error) {
	if !ws.states.open(state, "people wallet", &s) || !ws.states.clock().Before(s.Ends) {
		return s, errProof
	}
	return s, nil
}

// Finish checks a signature by the key or the code (ERC-1271) of the account, once. Errors below status 503 are safe to show.
func (ws *Wallets) Finish(ctx context.Context, source, state, signature string) (f WalletFor, pr Proof, err error) {
	s, err := ws.open(state)
	if err == nil {
		err = ws.limits.attempt(source)
	}
	if err != nil {
		return s.WalletFor, pr, err
	}
	f = s.WalletFor
	raw, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(signature), "0x"))
	if err != nil || len(raw) == 0 || len(raw) > evm.MaxSignature {
		return f, pr, errWallet
	}
	digest := evm.PersonalDigest(s.Text)
	contract := false
	if signer, err := evm.Recover(digest, raw); err != nil || signer != s.Address {
		if contract, err = ws.signedByCode(ctx, s.Address, digest, raw); err != nil {
			return f, pr, err
		}
	}
	err = ws.store.Tx(ctx, func(tx *store.Tx) error {
		if err := signsIn(ctx, tx, s.Address); err != nil {
			return err
		}
		return ws.states.claim(ctx, tx, state, s.Ends)
	})
	return f, Proof{Kind: Wallet, Subject: s.Address.Lower(), Name: s.Address.String(), Contract: contract}, err
}

func (ws *Wallets) signedByCode(ctx context.Context, at toll.Address, digest [32]byte, signature []byte) (bool, error) {
	switch {
	case evm.Wrapped(signature):
		return false, toll.Errorf(toll.CodeNotAuthenticated, "This smart account is not deployed yet (ERC-6492). Deploy it first.")
	case ws.accepts == nil:
		return false, errNoChain
	}
	yes, err := ws.accepts(ctx, at, digest, signature)
	if err == nil && !yes {
		err = errWallet
	}
	return yes, err
}

// signsIn refuses a workspace whose key the service holds: an exported key would sign in for ever.
func signsIn(ctx context.Context, q store.Querier, at toll.Address) error {
	w, err := store.PrincipalByAddress(ctx, q, at)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil && CustodyOf(w) != toll.CustodyExternal {
		err = errOwnKey
	}
	return err
}

// ownWallet makes a person the owner of the workspace of a proved wallet, unless it has other members. It returns acts for the audit log.
func ownWallet(ctx context.Context, tx *store.Tx, now time.Time, user toll.UUID, at toll.Address, operator bool) ([]store.Act, error) {
	act := "workspace.claimed"
	err := store.LockPrincipal(ctx, tx, at) // of two who come at once one is first
	if errors.Is(err, store.ErrNotFound) {
		act = "workspace.created"
		err = store.InsertPrincipal(ctx, tx, store.Principal{Address: at, CreatedAt: now, Operator: operator})
	}
	if err == nil {
		err = signsIn(ctx, tx, at)
	}
	if err != nil {
		return nil, err
	}
	in, err := store.LockMembers(ctx, tx, at)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(in, func(m store.Membership) bool { return m.UserID == user }) {
		return nil, nil
	}
	if len(in) > 0 {
		return nil, errOwned
	}
	m := store.Membership{Workspace: at, UserID: user, Role: toll.RoleOwner, CreatedAt: now}
	return []store.Act{{Workspace: at.Lower(), Act: act, Object: at.Lower()}}, addMember(ctx, tx, m)
}
