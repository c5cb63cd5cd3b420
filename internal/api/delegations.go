package api

func delegationRoutes() []route { return nil }
