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
	textSignIn = "Sign in. For ten minutes this also counts as your confirmation for changes to your account and for programs that you let in."
	textAdd    = "Add this wallet to your account, so that it signs you in, and become the owner of its workspace."
	textProve  = "Confirm that it is you. For ten minutes you can change who uses your account, and let programs in."
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
	errWallet  = toll.Errorf(toll.CodeNotAuthenticated, "The signature is not one of this wallet for this text. Start again.")
	errNoChain = toll.Errorf(toll.CodeForbidden, "This account signs by a contract, and the service has no chain to ask it. Sign in with a wallet that has a key.").
			WithHint("The operator connects a chain with --chain-rpc-urls.")
	errOwnKey = toll.Errorf(toll.CodeForbidden, "This address is a workspace whose key the service holds, so its key does not sign anybody in.").
			WithHint("Sign in as a member of the workspace.")
	errOwned = toll.Errorf(toll.CodeForbidden, "The workspace of this wallet has people already.").
			WithHint("Sign in as one of them, and add the wallet on your account.")
)

// BeginWallet returns what a wallet is to sign. Errors are safe to show: [toll.CodeBadAddress], [toll.CodeForbidden] for the address of
// a workspace whose key the service holds, [toll.CodeRateLimited].
func (p *People) BeginWallet(ctx context.Context, source, address string, f WalletFor) (WalletText, error) {
	if err := take(p.limits.tries, p.limits.began, source); err != nil {
		return WalletText{}, err
	}
	at, err := toll.ParseAddress(address)
	if err == nil && at.IsZero() {
		err = toll.NewError(toll.CodeBadAddress)
	}
	if err == nil {
		err = p.signsIn(ctx, p.Store, at)
	}
	if err != nil {
		return WalletText{}, err
	}
	u, err := url.Parse(p.PublicURL)
	if err != nil {
		return WalletText{}, err
	}
	now := p.Clock()
	s := walletState{WalletFor: f, Address: at, Ends: now.Add(walletLife)}
	statement := textSignIn
	switch {
	case f.Adds:
		statement = textAdd
	case f.Proves:
		statement = textProve
	}
	env := p.Auth.Environment()
	info := x402.SignInInfo{
		Domain: u.Host, URI: p.PublicURL, Version: "1", Nonce: rand.Text(), IssuedAt: x402.SignInTime(now),
		ExpirationTime: x402.SignInTime(s.Ends), Statement: statement,
	}
	s.Text = x402.NewSignIn(info, x402.SignInChain{ChainID: env.Network(), Type: x402.TypeEIP191}, at).Text()
	state, err := p.sealState(s, "wallet")
	return WalletText{at, s.Text, state}, err
}

// ReadWallet returns what a text was for, and the text, without a signature. The error is safe to show.
func (p *People) ReadWallet(state string) (WalletFor, WalletText, error) {
	s, err := p.openWallet(state)
	return s.WalletFor, WalletText{s.Address, s.Text, state}, err
}

func (p *People) openWallet(state string) (s walletState, err error) {
	if !p.openState(state, "wallet", &s) || !p.Clock().Before(s.Ends) {
		return s, errProved
	}
	return s, nil
}

// FinishWallet checks a signature: of the key of the address, else code of the account is asked (ERC-1271), each time. A text
// counts once. Errors are safe to show, but for those with status 503.
func (p *People) FinishWallet(ctx context.Context, source, state, signature string) (f WalletFor, pr Proved, err error) {
	s, err := p.openWallet(state)
	if err == nil {
		err = take(p.limits.tries, p.limits.began, source)
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
		if contract, err = p.signedByCode(ctx, s.Address, digest, raw); err != nil {
			return f, pr, err
		}
	}
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := p.signsIn(ctx, tx, s.Address); err != nil {
			return err
		}
		return p.claimState(ctx, tx, state, s.Ends)
	})
	return f, Proved{Kind: Wallet, Subject: s.Address.Lower(), Name: s.Address.String(), Contract: contract}, err
}

func (p *People) signedByCode(ctx context.Context, at toll.Address, digest [32]byte, signature []byte) (bool, error) {
	switch {
	case evm.Wrapped(signature):
		return false, toll.Errorf(toll.CodeNotAuthenticated, "This account is not on the chain yet (ERC-6492). Deploy it first.")
	case p.Accepts == nil:
		return false, errNoChain
	}
	yes, err := p.Accepts(ctx, at, digest, signature)
	if err == nil && !yes {
		err = errWallet
	}
	return yes, err
}

// signsIn returns nil when the key of an address may sign somebody in: not that of a workspace whose key the service holds, else
// whoever exported it once could sign in for ever.
func (p *People) signsIn(ctx context.Context, q store.Querier, at toll.Address) error {
	w, err := store.PrincipalByAddress(ctx, q, at)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil && CustodyOf(w) != toll.CustodyExternal {
		err = errOwnKey
	}
	return err
}

// ownWallet makes a person the owner of the workspace of a wallet that they proved, which is made if it is not there. Nobody joins one
// that has people in this way. It returns what the audit log is to say.
func (p *People) ownWallet(ctx context.Context, tx *store.Tx, user toll.UUID, at toll.Address, operator bool) ([]store.Act, error) {
	act := "workspace.claimed"
	err := store.LockPrincipal(ctx, tx, at) // of two who come at once one is first
	if errors.Is(err, store.ErrNotFound) {
		act = "workspace.created"
		err = store.InsertPrincipal(ctx, tx, store.Principal{Address: at, CreatedAt: p.Clock(), Operator: operator})
	}
	if err == nil {
		err = p.signsIn(ctx, tx, at)
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
	m := store.Membership{Workspace: at, UserID: user, Role: toll.RoleOwner, CreatedAt: p.Clock()}
	return []store.Act{{Workspace: at.Lower(), Act: act, Object: at.Lower()}}, store.InsertMembership(ctx, tx, m)
}
