package api

func sandboxRoutes() []route { return nil }
