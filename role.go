package toll

import "slices"

// Role is the role of a person in a workspace.
type Role string

// Roles, from the most rights to the fewest.
const (
	RoleOwner     Role = "owner"
	RoleAdmin     Role = "admin"
	RoleDeveloper Role = "developer"
	RoleBilling   Role = "billing"
	RoleViewer    Role = "viewer"
)

// Roles returns every role.
func Roles() []Role { return []Role{RoleOwner, RoleAdmin, RoleDeveloper, RoleBilling, RoleViewer} }

// Rights returns the rights of the role, or nil for an unknown role.
func (r Role) Rights() Rights {
	switch r {
	case RoleOwner:
		return AllRights()
	case RoleAdmin:
		return slices.DeleteFunc(AllRights(), func(right Right) bool { return right == RightExport })
	case RoleDeveloper:
		return Rights{RightRead, RightSell, RightSpend, RightManage, RightKeys}
	case RoleBilling:
		return Rights{RightRead, RightSpend, RightMoney}
	case RoleViewer:
		return Rights{RightRead}
	}
	return nil
}

// Manages reports whether a person with this role may grant, change, and remove the other role. An owner manages all roles,
// an admin all except owner.
func (r Role) Manages(other Role) bool {
	return r == RoleOwner || r == RoleAdmin && other != RoleOwner
}

// ParseRole returns the role named s. An unknown word is an error with [CodeBadRequest].
func ParseRole(s string) (Role, error) {
	if !slices.Contains(Roles(), Role(s)) {
		return "", Faults([]Fault{{
			Path: "role", Message: "must be owner, admin, developer, billing, or viewer; got " + limited(s),
		}})
	}
	return Role(s), nil
}
