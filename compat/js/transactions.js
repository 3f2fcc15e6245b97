// Transactional producers, by the names they were given.
'use strict'

module.exports = (kafka, toMessage) => {
  const writers = new Map()

  async function open({ writer, transactional_id: transactionalId }) {
    const producer = kafka.producer({
      transactionalId,
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner: () => ({ message }) => message.partition,
    })
    await producer.connect()
    writers.set(writer, { producer })
    return null
  }

  return {
    open_transactions: open,
    transaction_begin: async ({ writer }) => {
      const found = writers.get(writer)
      found.transaction = await found.producer.transaction()
      return null
    },
    transaction_send: async ({ writer, topic, partition, records }) => {
      const messages = records.map(record => toMessage(record, partition))
      await writers.get(writer).transaction.send({ topic, messages, acks: -1 })
      return null
    },
    transaction_send_offset: async ({ writer, group, topic, partition, offset }) => {
      const topics = [{ topic, partitions: [{ partition, offset: String(offset) }] }]
      await writers.get(writer).transaction.sendOffsets({ consumerGroupId: group, topics })
      return null
    },
    transaction_commit: async ({ writer }) => {
      await writers.get(writer).transaction.commit()
      return null
    },
    transaction_abort: async ({ writer }) => {
      await writers.get(writer).transaction.abort()
      return null
    },
    transaction_close: async ({ writer }) => {
      await writers.get(writer).producer.disconnect()
      writers.delete(writer)
      return null
    },
  }
}
