package toll

import (
	"slices"
	"strings"
)

// Right is what an API key may do. Each route of the service needs one, or is public.
type Right string

// Rights.
const (
	RightRead    Right = "read"    // every read of own records
	RightSell    Right = "sell"    // verify, settle, release, sub-tasks, offers
	RightSpend   Right = "spend"   // access tokens, orders, delegations, payment methods, faucet
	RightManage  Right = "manage"  // agents, plans, webhooks, mint, publish
	RightMoney   Right = "money"   // refunds, take back, payouts, exports of orders
	RightKeys    Right = "keys"    // make and end API keys, let programs in
	RightMembers Right = "members" // people of the workspace
	RightExport  Right = "export"  // the private key of the wallet
)

// Rights is a set of rights, without repeats, in the order of [AllRights].
type Rights []Right

// AllRights returns every right.
func AllRights() Rights {
	return Rights{
		RightRead, RightSell, RightSpend, RightManage, RightMoney, RightKeys, RightMembers, RightExport,
	}
}

// ProgramRights returns the rights that a person can give a program by OAuth.
func ProgramRights() Rights { return Rights{RightRead, RightSell, RightSpend, RightManage} }

// ParseRights returns the set of these words. An unknown word is an error with [CodeBadRequest].
func ParseRights(words []string) (Rights, error) {
	all := AllRights()
	for _, w := range words {
		if !slices.Contains(all, Right(w)) {
			return nil, Faults([]Fault{{
				Path:    "rights",
				Message: "must be words of " + all.String() + "; got " + limited(w),
			}})
		}
	}
	return slices.DeleteFunc(all, func(r Right) bool { return !slices.Contains(words, string(r)) }), nil
}

// limited quotes a word of a caller, at most 32 bytes of it.
func limited(w string) string { return "'" + strings.ToValidUTF8(w[:min(len(w), 32)], "") + "'" }

// Has reports whether a right is in the set.
func (r Rights) Has(right Right) bool { return slices.Contains(r, right) }

// Missing returns the first right of the set that another set lacks, "" for none.
func (r Rights) Missing(in Rights) Right {
	for _, right := range r {
		if !in.Has(right) {
			return right
		}
	}
	return ""
}

// Within returns the rights that are in both sets.
func (r Rights) Within(other Rights) Rights {
	return slices.DeleteFunc(slices.Clone(r), func(right Right) bool { return !other.Has(right) })
}

// String returns the words with blanks between.
func (r Rights) String() string {
	words := make([]string, len(r))
	for i, right := range r {
		words[i] = string(right)
	}
	return strings.Join(words, " ")
}

// KeyMaker says how an API key was made.
type KeyMaker string

// Makers of API keys.
const (
	MadeLocally KeyMaker = "local" // on the database itself, by the operator
	MadeByUser  KeyMaker = "user"  // by a person who signed in, for a program of their own
	MadeByKey   KeyMaker = "key"   // by another API key
	MadeByGrant KeyMaker = "grant" // by the consent to a program
)

// Ended counts what ended with an API key or a consent, or what was kept.
type Ended struct {
	APIKeys      int64 `json:"apiKeys"`
	AccessTokens int64 `json:"accessTokens"`
	Grants       int64 `json:"grants"`
}

// KeyRotated is the answer to the rotation of an API key: the new one, with its text.
type KeyRotated struct {
	APIKey
	PreviousID     Hash  `json:"previousId"`
	PreviousEndsAt Time  `json:"previousEndsAt"` // until then both keys work
	Moved          Moved `json:"moved"`          // what the old key had made, and the new one is the parent of
}

// Moved counts what got another parent; access tokens do as well, and are not counted.
type Moved struct {
	APIKeys int64 `json:"apiKeys"`
	Grants  int64 `json:"grants"`
}

// KeyRevoked is the answer to the end of an API key.
type KeyRevoked struct {
	Success bool             `json:"success"`
	ID      Hash             `json:"id"`
	Status  PermissionStatus `json:"status"`
	Ended   Ended            `json:"ended"`         // what the key had made, and what came of that
	Kept    *Ended           `json:"kept,omitzero"` // what got another parent
}
