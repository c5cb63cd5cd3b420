package api

func eventRoutes() []route { return nil }
