"""The gateway: lets requests for models in, finds or awaits a replica for each, and passes answers on as they come.

It keeps nothing that matters: services, replicas and limits are rows, and any number of gateways may run.
"""
