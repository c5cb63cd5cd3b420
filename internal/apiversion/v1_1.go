package apiversion

// Release 1.1.
var release1_1 = []Change{
	{
		Since:   Version{1, 1},
		Summary: "`creditsConfig.proofRequired` is no longer an alias of `onchainMirror` when a plan is registered.",
		Ops:     []string{"registerPlan", "registerAgentWithPlan"},
		Up:      proofRequired,
	},
	{
		Since:   Version{1, 1},
		Summary: "Permissions no longer carry `orderLimit`, `planCost`, and `creditsPerOrder`, which were always null.",
		Ops:     []string{"listPermissions", "readPermission"},
		Down:    permissionNulls,
	},
}

// proofRequired renames the alias in creditsConfig and plan.creditsConfig. onchainMirror wins if it has a value.
func proofRequired(body []byte) ([]byte, error) {
	root, err := members(body, whole(body))
	if err != nil {
		return body, nil // the decoder says what is wrong with it
	}
	var edits []edit
	configs := find(root, "creditsConfig")
	for _, plan := range find(root, "plan") {
		if ms, err := members(body, plan.value); err == nil {
			configs = append(configs, find(ms, "creditsConfig")...)
		}
	}
	for _, c := range configs {
		if ms, err := members(body, c.value); err == nil {
			edits = append(edits, renameAlias(body, ms, "proofRequired", "onchainMirror")...)
		}
	}
	return apply(body, edits), nil
}

// renameAlias renames each member called alias, unless the name has a value. A null under the name takes the alias, which is no
// longer read.
func renameAlias(text []byte, ms []member, alias, name string) []edit {
	aliases, named := find(ms, alias), find(ms, name)
	if len(aliases) == 0 || len(named) > 1 {
		return nil
	}
	var edits []edit
	for _, n := range named {
		if string(text[n.value.start:n.value.end]) != "null" {
			return nil
		}
		edits = append(edits, edit{at: n.key, text: `"` + alias + `"`})
	}
	for _, a := range aliases {
		edits = append(edits, edit{at: a.key, text: `"` + name + `"`})
	}
	return edits
}

// permissionNulls adds the three members to a permission, or to each permission of a list.
func permissionNulls(body []byte) ([]byte, error) {
	const nulls = `"orderLimit":null,"planCost":null,"creditsPerOrder":null`
	root, err := members(body, whole(body))
	if err != nil {
		return nil, err
	}
	records := []span{whole(body)}
	if lists := find(root, "permissions"); len(lists) == 1 {
		if records, err = elements(body, lists[0].value); err != nil {
			return nil, err
		}
	}
	edits := make([]edit, len(records))
	for i, at := range records {
		if edits[i], err = appendMembers(body, at, nulls); err != nil {
			return nil, err
		}
	}
	return apply(body, edits), nil
}
